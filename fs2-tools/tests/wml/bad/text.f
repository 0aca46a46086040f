# error: 2:6: this quoted text has no end: expected `"`
echo "hello
