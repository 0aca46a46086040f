# error: 2:1: the period of `psrun` is longer than a year
psrun 9223372036854775807 60
