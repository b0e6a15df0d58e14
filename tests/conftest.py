"""What all tests share: hypothesis draws the same examples on every machine and is never hurried."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "byheart",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("byheart")
