"""Which distances a head can look back at far places: a table, computed by linear programs.

A *far* head looks `o` places back, and at its own place where there is nothing so far back. Its score is a sum of waves
of the distance, whose frequencies the architecture fixes; the best sum leads everywhere else by the share of its size
that `byheart.checkpoints.hosts.rotary.look_back(..., far=True)` computes. That share changes from one distance to the
next: it is large where the waves that turn fastest are about in step with distance 0. FAR_PLACES are the distances at
which it is at least 0.095 in every architecture (base 10,000, 2,048 positions, heads of 64 dimensions, or of 32 that
turn), so that 20 nats remain after the errors of bfloat16. FAR_IN_NEED, with at least 0.075, are for what no place near
one of the others distinguishes. A test compares some of them with the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

LEAST_LEAD, LEAST_IN_NEED, USUAL_BASE = 0.095, 0.075, 10_000.0
LONGEST_NEAR = 4  # farther ones lead by less, and score all places so low at the start that float16 overflows

FAR_PLACES = (
    5, 6, 7, 11, 12, 13, 18, 19, 23, 24, 25, 31, 32, 33, 36, 37, 38, 43, 44, 50, 55, 56, 57, 62, 63, 67, 68, 69,
    75, 76, 80, 81, 82, 88, 94, 99, 100, 101, 106, 107, 112, 113, 118, 119, 120, 124, 125, 126, 131, 132, 137,
    138, 143, 144, 145, 156, 157, 163, 169, 170, 175, 176, 181, 182, 188, 189, 194, 195, 200, 201, 207, 212,
    213, 214, 219, 220, 226, 232, 233, 238, 239, 244, 245, 251, 256, 257, 258, 276, 277, 282, 283, 289, 295,
    301, 302, 308, 313, 314, 319, 320, 321, 326, 333, 338, 339, 345, 346, 351, 352, 357, 358, 370, 371, 376,
    377, 382, 383, 389, 390, 395, 396, 402, 414, 415, 420, 421, 426, 427, 433, 434, 439, 440, 446, 452, 457,
    458, 459, 490, 496, 502, 503, 515, 527, 528, 533, 534, 540, 546, 547, 552, 553, 558, 559, 565, 566, 571,
    572, 578, 590, 591, 596, 597, 602, 603, 609, 615, 616, 622, 628, 634, 635, 640, 641, 647, 653, 659, 660,
    666, 671, 672, 678, 679, 684, 685, 691, 692, 696, 697, 703, 704, 710, 715, 716, 729, 735, 741, 747, 748,
    753, 754, 759, 760, 767, 772, 773, 779, 785, 791, 792, 797, 798, 804, 810, 811, 815, 816, 817, 848, 873,
    879, 880, 885, 886, 892, 905, 911, 916, 917, 930, 936, 942, 948, 949, 954, 955, 961, 973, 974, 980, 986,
    992, 993, 999, 1005, 1011, 1012, 1016, 1017, 1018, 1024, 1030, 1049, 1050, 1055, 1061, 1062, 1068, 1073,
    1074, 1081, 1087, 1093, 1106, 1112, 1117, 1118, 1124, 1125, 1129, 1130, 1131, 1137, 1150, 1156, 1162, 1168,
    1169, 1174, 1175, 1181, 1187, 1193, 1194, 1200, 1206, 1212, 1218, 1219, 1225, 1230, 1231, 1237, 1238, 1244,
    1250, 1251, 1263, 1269, 1274, 1275, 1294, 1306, 1307, 1313, 1319, 1326, 1331, 1332, 1338, 1344, 1350, 1351,
    1363, 1369, 1370, 1375, 1376, 1382, 1388, 1395, 1407, 1413, 1414, 1419, 1420, 1426, 1431, 1432, 1439, 1445,
    1450, 1451, 1452, 1508, 1520, 1551, 1552, 1564, 1570, 1571, 1577, 1583, 1589, 1596, 1608, 1621, 1627, 1633,
    1640, 1646, 1652, 1659, 1665, 1671, 1677, 1684, 1689, 1690, 1696, 1697, 1709, 1721, 1728, 1734, 1740, 1746,
    1747, 1752, 1753, 1759, 1765, 1766, 1771, 1778, 1784, 1790, 1791, 1797, 1803, 1809, 1822, 1828, 1834, 1847,
    1866, 1872, 1878, 1885, 1890, 1891, 1897, 1898, 1903, 1904, 1909, 1910, 1929, 1935, 1941, 1942, 1947, 1948,
    1954, 1966, 1967, 1973, 1978, 1979, 1985, 1991, 1992, 1998, 2004, 2010, 2011, 2017, 2023,
)  # fmt: skip

FAR_IN_NEED = (
    30, 74, 87, 89, 168, 187, 225, 250, 270, 288, 290, 300, 307, 327, 332, 344, 364, 365, 388, 401, 413, 432,
    445, 451, 471, 477, 478, 484, 489, 491, 501, 509, 514, 521, 522, 535, 577, 579, 584, 610, 627, 633, 648,
    658, 665, 677, 690, 702, 709, 728, 734, 736, 766, 778, 780, 803, 836, 849, 854, 860, 861, 867, 872, 891,
    893, 898, 924, 929, 935, 937, 960, 968, 985, 987, 998, 1004, 1010, 1023, 1029, 1036, 1037, 1056, 1067, 1080,
    1086, 1092, 1094, 1099, 1105, 1111, 1136, 1138, 1139, 1149, 1155, 1161, 1186, 1188, 1199, 1205, 1211, 1213,
    1232, 1243, 1249, 1256, 1257, 1262, 1268, 1288, 1295, 1300, 1301, 1312, 1318, 1325, 1339, 1345, 1357, 1364,
    1383, 1389, 1394, 1396, 1401, 1406, 1408, 1433, 1438, 1444, 1464, 1476, 1483, 1488, 1489, 1507, 1514, 1527,
    1532, 1533, 1545, 1546, 1553, 1558, 1563, 1565, 1576, 1588, 1590, 1595, 1609, 1615, 1620, 1628, 1634, 1653,
    1658, 1664, 1676, 1678, 1683, 1702, 1703, 1708, 1722, 1727, 1733, 1741, 1754, 1764, 1772, 1777, 1789, 1796,
    1802, 1808, 1810, 1816, 1821, 1827, 1829, 1835, 1841, 1853, 1854, 1865, 1871, 1873, 1879, 1884, 1922, 1923,
    1928, 1934, 1953, 1955, 1965, 1972, 1986, 1997, 2003, 2009, 2016, 2022, 2029,
)  # fmt: skip

# Those that lead by 0.1 where yarn is part of the architecture (gpt-oss, DeepSeek-V3). With this base there are more of
# them than with 10,000 or 500,000, and libraries have other defaults.
YARN_BASE = 20_000.0
YARN_PLACES = (
    5, 6, 12, 13, 18, 19, 30, 31, 38, 43, 44, 49, 50, 75, 94, 107, 119, 125, 126, 138, 150, 151, 157, 169, 245, 289,
    294, 295, 301, 308, 339, 370, 415, 446, 584,
)  # fmt: skip
# Those at which a head leads by 8.5 nats under Gemma 2's cap, and others with 7, both after the errors of bfloat16
# (capped.py).
CAPPED_BASE = 500_000.0
CAPPED_PLACES = (5, 6, 12, 19, 25, 31, 44, 56, 69, 113, 157, 226, 295, 314, 358)
CAPPED_IN_NEED = (18, 63, 88, 100, 144, 201, 257, 289, 301, 339)


@dataclass(frozen=True)
class FarPlaces:
    """The places that a sparse table may look at, and those at which it always looks.

    Attributes:
        easy: Distances at which a far head leads by LEAST_LEAD.
        in_need: Others, for what nothing near one of the first distinguishes.
        start: Near places at which the table always looks.
        longest: The farthest near place.
        least: How many places every row fixes.
        first: Offsets of a table before it, whose states it reads; none: it reads tokens.
        base: The base of rotary positions that the distances are for; None: they are for USUAL_BASE, and for others
            where a program of `looking_back.far_margin` finds so.
    """

    easy: tuple[int, ...] = FAR_PLACES
    in_need: tuple[int, ...] = FAR_IN_NEED
    start: tuple[int, ...] = (0, 1, 2, 3)
    longest: int = LONGEST_NEAR
    least: int = 4
    first: tuple[int, ...] = ()
    base: float | None = None

    @cached_property
    def rest(self) -> dict[int, int]:
        """The near place that a far one rests on: the nearest from which a head can look there.

        Only one layer reads a table that follows another one, so its far places rest on the newest.

        >>> FarPlaces((6,), ()).rest, FarPlaces((6,), (), first=(0, 1)).rest
        ({10: 4, 9: 3, 8: 2, 7: 1, 6: 0}, {6: 0})
        """
        rests = (0,) if self.first else range(self.longest + 1)
        return {place + rest: rest for rest in reversed(rests) for place in (*self.easy, *self.in_need)}


USUAL = FarPlaces()
YARN = FarPlaces(YARN_PLACES, (), base=YARN_BASE)
CHAINED = FarPlaces(start=(0, 4), least=2, first=(0, 1, 2, 3))
CAPPED = FarPlaces(CAPPED_PLACES, CAPPED_IN_NEED, start=(0,), longest=1, least=2, first=(0, 1), base=CAPPED_BASE)
