"""How far apart the points of a data set are, exactly."""
