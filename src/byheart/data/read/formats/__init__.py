"""One file per format; importing it registers its readers (`byheart.data.read.records.reader`)."""
