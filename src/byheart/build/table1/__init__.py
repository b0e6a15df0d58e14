"""The other rows of KS25's Table 1: feed-forward networks on flattened rows, and earlier Transformers."""

from byheart.build.table1 import baum88 as baum88
from byheart.build.table1 import kim23 as kim23
from byheart.build.table1 import ks24 as ks24
from byheart.build.table1 import mahdavi24 as mahdavi24
from byheart.build.table1 import nilsson65 as nilsson65
from byheart.build.table1 import park21 as park21
from byheart.build.table1 import vardi22 as vardi22
