# error: 2:5: the run's time is longer than a year
run 9223372036854775807
