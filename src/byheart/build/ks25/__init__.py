"""KS25: the main theorem and its variants, with the lemmas that they are built from."""

from byheart.build.ks25 import construction as construction
from byheart.build.ks25 import embedding as embedding
from byheart.build.ks25 import sets as sets
