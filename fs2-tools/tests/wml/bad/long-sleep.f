# error: 2:7: `sleep` is longer than a year
sleep 9223372036854775807
