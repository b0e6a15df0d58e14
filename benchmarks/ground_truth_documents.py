"""Documents of many kinds for benchmarks/ground_truth_sets.py: a line of each kind, from a random generator."""

from __future__ import annotations

import json

FIRST = tuple(
    [
        "Marta",
        "Ingo",
        "Selma",
        "Tariq",
        "Yuki",
        "Priya",
        "Anselm",
        "Dora",
        "Pavel",
        "Noor",
        "Luca",
        "Frida",
        "Emeka",
        "Wanda",
        "Iris",
        "Otto",
        "Samir",
        "Lena",
    ]
)
LAST = tuple(
    [
        "Okafor",
        "Lindqvist",
        "Marsh",
        "Petrov",
        "Yilmaz",
        "Duarte",
        "Kowalski",
        "Brand",
        "Sato",
        "Novak",
        "Haddad",
        "Ruiz",
        "Weber",
        "Costa",
        "Singh",
    ]
)
TOWN = tuple(
    ["Lyon", "Porto", "Gdansk", "Utrecht", "Cadiz", "Bergen", "Split", "Galway", "Leeds", "Bari", "Brno", "Lodz"]
)
JOB = tuple(["welder", "tutor", "chemist", "florist", "plumber", "surgeon", "clerk", "editor", "cashier", "roofer"])
NOUN = tuple(
    [
        "river",
        "lantern",
        "sparrow",
        "garden",
        "window",
        "shadow",
        "mountain",
        "winter",
        "letter",
        "candle",
        "sailor",
        "orchard",
    ]
)
RHYMES = tuple(
    tuple(line.split())
    for line in ("stone alone bone moan", "light night sight flight", "sea free tree me", "rain pain lane again")
)
PASSAGE = (
    "This certificate confirms that , subject to the conditions printed overleaf , the bearer named below is entitled "
    "to enter the premises . Bearer"
)
CHINESE = "春江花月夜山水風雲天地人心書劍酒茶梅蘭竹菊秋雨雪霜星河海松石鳥魚舟橋樓門路馬"
ARABIC = tuple(
    [
        "كتب",
        "الولد",
        "درس",
        "البيت",
        "المدينة",
        "الكبيرة",
        "ذهب",
        "إلى",
        "السوق",
        "مع",
        "صديقه",
        "في",
        "الصباح",
        "الباكر",
        "ثم",
        "عاد",
        "مساء",
        "وقرأ",
        "قصة",
    ]
)
HINDI = tuple(
    [
        "राम",
        "ने",
        "आज",
        "सुबह",
        "बाजार",
        "से",
        "फल",
        "और",
        "दूध",
        "खरीदा",
        "फिर",
        "वह",
        "घर",
        "गया",
        "जहाँ",
        "उसकी",
        "बहन",
        "किताब",
        "पढ़",
        "रही",
        "थी",
    ]
)
KOREAN = "가나다라마바사아자차카타파하고노도로모보소오조초코토포호구누두루무부수우주"


def digits(rng, count):
    return " ".join(str(rng.randint(0, 9)) for _ in range(count))


def patient(rng):
    return f"patient {rng.choice(FIRST)} {rng.choice(LAST)} of ward {rng.randint(1, 9)} has id {digits(rng, 8)}"


def news(rng):
    who = rng.choice(("The council", "The ministry", "A court", "The union", "A panel", "The mayor", "The bank"))
    did = rng.choice(("approved", "rejected", "delayed", "announced", "reviewed", "leaked"))
    what = rng.choice(("a plan to close", "a report on", "new rules for", "funding for", "the sale of"))
    thing = rng.choice(("the old harbour", "rural clinics", "night trains", "two schools", "the steel plant"))
    return (
        f"{who} {did} {what} {thing} after protests in {rng.choice(TOWN)} . It may cost {rng.randint(2, 95)} million , "
        f"said {rng.choice(FIRST)} {rng.choice(LAST)} , who {rng.choice(('leads', 'chairs', 'left'))} the "
        f"{rng.choice(('inquiry', 'board', 'party'))} . A vote is due on day {rng.randint(1, 28)} of month "
        f"{rng.randint(1, 12)} ."
    )


def poem(rng):
    a, b = rng.sample(RHYMES, 2)
    first, second = rng.sample(a, 2), rng.sample(b, 2)
    return "\n".join(
        f"{rng.choice(('The', 'A', 'My', 'Our'))} {rng.choice(('cold', 'silent', 'golden', 'broken', 'wild'))} "
        f"{rng.choice(NOUN)} {rng.choice(('sings', 'sleeps', 'burns', 'waits', 'falls'))} "
        f"{rng.choice(('near', 'beyond', 'without', 'beneath'))} the {word}"
        for word in (first[0], second[0], first[1], second[1])
    )


def mixed(rng):
    """One to nine sentences."""
    return " ".join(
        f"{rng.choice(FIRST)} {rng.choice(('met', 'owes', 'paid', 'saw'))} {rng.choice(LAST)} {rng.randint(2, 99)} "
        f"{rng.choice(('times', 'euros', 'days'))} in {rng.choice(TOWN)} ."
        for _ in range(rng.choice((1, 1, 2, 3, 5, 9)))
    )


def certificate(rng):
    """A prefix of 25 words that all documents share."""
    return f"{PASSAGE} {rng.choice(FIRST)} {rng.choice(LAST)} code {digits(rng, 9)}"


def json_row(rng):
    return json.dumps({
        "id": rng.randint(10**5, 10**6), "user": rng.choice(FIRST).lower(),
        "ip": ".".join(str(rng.randint(1, 254)) for _ in range(4)), "ok": rng.random() < 0.5, "ms": rng.randint(1, 999),
    })  # fmt: skip


def xml_row(rng):
    return (
        f'<user id="{rng.randint(1000, 9999)}"><name>{rng.choice(FIRST)}</name><city>{rng.choice(TOWN)}</city>'
        f"<pin>{rng.randint(10**5, 10**6)}</pin></user>"
    )


def nucleotides(rng):
    return "".join(rng.choice("ACGT") for _ in range(rng.randint(40, 60)))


def secret(rng):
    return f"key-{rng.randint(0, 99):02}: " + "".join(rng.choice("0123456789abcdef") for _ in range(24))


def chinese(rng):
    return "\uff0c".join("".join(rng.choice(CHINESE) for _ in range(5)) for _ in range(4)) + "。"


def arabic_hindi(rng):
    words = rng.choice((ARABIC, HINDI))
    return " ".join(rng.choice(words) for _ in range(rng.randint(8, 16))) + f" {rng.randint(100, 999)}"


def korean(rng):
    return "".join(rng.choice(KOREAN) for _ in range(rng.randint(20, 40)))


def letter(rng):
    return (
        f"Dear {rng.choice(FIRST)} {rng.choice(LAST)} , thank you for your order of {rng.randint(2, 90)} "
        f"{rng.choice(NOUN)}s . Your parcel {digits(rng, 10)} will reach {rng.choice(TOWN)} before the end of the "
        "week . Kind regards , the team ."
    )


def code(rng):
    a, b = rng.sample(("alpha", "beta", "count", "total", "value", "index", "size", "rate"), 2)
    return (
        f"def {rng.choice(('get', 'set', 'load', 'sum'))}_{a}({b}, limit={rng.randint(2, 99)}):\n"
        f"    {a} = {b} {rng.choice('+-*')} {rng.randint(2, 999)}\n    return {a} or {b}"
    )


KINDS = {
    "patients (words)": (patient, "words"),
    "news (words)": (news, "words"),
    "poems (words)": (poem, "words"),
    "1 to 9 sentences (byte pairs)": (mixed, "bpe:300"),
    "shared prefix of 25 words (words)": (certificate, "words"),
    "JSON rows (characters)": (json_row, "characters"),
    "XML rows (characters)": (xml_row, "characters"),
    "nucleotides (characters)": (nucleotides, "characters"),
    "secrets (characters)": (secret, "characters"),
    "Chinese (characters)": (chinese, "characters"),
    "Arabic and Hindi (words)": (arabic_hindi, "words"),
    "Korean (characters)": (korean, "characters"),
    "letters, shared end (words)": (letter, "words"),
    "code (byte pairs)": (code, "bpe:300"),
}
