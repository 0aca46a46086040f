#!/bin/bash
# A page of `fs2-replay run --html` in a browser that is there only for this: light, dark, as narrow as a phone,
# and printed. Says what it finds wrong by itself (requests, errors, text outside pictures); whether it reads well
# is for who looks at the pictures. Needs chromium (apt-get install chromium); is skipped without.
#   tests/report-screenshots.sh [PAGE.html] [DIR]
# Without a page one is made of a trace drawn here. The pictures are DIR/{light,dark,phone,phone-dark}.png and print.pdf.
set -euo pipefail
page=${1:+$(realpath "$1")} out=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/.."
out=${out:-target/report-screenshots}
browser=
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" > /dev/null; then browser=$name; break; fi
done
if [ -z "$browser" ]; then
    echo "skipped: report-screenshots: needs chromium (apt-get install chromium)"
    [ -z "${FS2_FORBID_SKIP:-}" ] || exit 1
    exit 0
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -z "$page" ]; then
    # Reads at scattered places, now and then a write: three rounds of the same.
    awk 'BEGIN { for (r = 0; r < 3; r++) { x = 7; for (i = 0; i < 3000; i++) { x = (x * 1103515245 + 12345) % 2147483648;
        printf "%.6f D %s %d 16 7 reader\n", r * 100 + i * 0.02, i % 40 == 39 ? "W" : "R", int(x / 1024) * 8 } } }' > "$scratch/scattered.txt"
    page=$scratch/page.html
    cargo run -q -p fs2-tools --bin fs2-replay -- run "$scratch/scattered.txt" --closed-loop --split 0,100,200 \
        --html "$page" > /dev/null
fi
run() { # options...: one start of the browser, which must not live longer than it takes
    timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking \
        --user-data-dir="$scratch/profile" --enable-logging=stderr --v=0 "$@" 2> "$scratch/log" > "$scratch/dom" ||
        { cat "$scratch/log"; echo "the browser failed"; exit 1; }
    # What the page itself did wrong, such as a fetch that its own policy forbids.
    if grep 'CONSOLE' "$scratch/log"; then echo "the page had errors"; exit 1; fi
}
shot() { # name, scheme (0 dark, 1 light), width, height, URL
    run --blink-settings=preferredColorScheme="$2" --window-size="$3,$4" --screenshot="$out/$1.png" "$5"
    [ -s "$out/$1.png" ] || { echo "no picture $1"; exit 1; }
    echo "$out/$1.png"
}
# How high it is, which texts lie outside their picture, and which lie on one another: asked in a frame of the
# width in question.
look() { # width
    cat > "$scratch/look.html" << HTML
<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><iframe id="f" src="file://$page" style="border:0;width:$1px;height:12000px"></iframe><pre id="said"></pre>
<script>
onload = () => {
  const d = document.getElementById('f').contentDocument, said = [];
  for (const svg of d.querySelectorAll('svg.ch')) {
    const frame = svg.getBoundingClientRect(), boxes = [];
    for (const t of svg.querySelectorAll('text')) {
      const b = t.getBoundingClientRect();
      if (!t.textContent || !b.width) continue;
      if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1)
        said.push('outside its picture: ' + t.textContent);
      for (const [c, o] of boxes)
        if (b.left < c.right - 1 && c.left < b.right - 1 && b.top < c.bottom - 3 && c.top < b.bottom - 3)
          said.push('on one another: ' + t.textContent + ' and ' + o.textContent);
      boxes.push([b, t]);
    }
    const small = Math.min(...boxes.map(([b]) => b.height));
    if (small < 9) said.push('text of ' + small + ' px');
  }
  if (d.documentElement.scrollWidth > $1) said.push('wider than $1 px: ' + d.documentElement.scrollWidth);
  document.getElementById('said').textContent = 'HEIGHT ' + Math.ceil(d.body.getBoundingClientRect().height) + '\n' + said.join('\n');
};
</script>
HTML
    run --allow-file-access-from-files --window-size=1400,1200 --dump-dom "file://$scratch/look.html"
    sed -n '/<pre id="said">/,/<\/pre>/p' "$scratch/dom" | sed 's/<[^>]*>//g'
}
height() { # width
    local said
    said=$(look "$1") || { echo "$said"; exit 1; }
    height=$(sed -n 's/^HEIGHT //p' <<< "$said")
    if [ -z "$height" ]; then echo "the page cannot be measured"; exit 1; fi
    if [ "$(grep -c . <<< "$said")" -gt 1 ]; then
        echo "at $1 px:"
        grep -v HEIGHT <<< "$said"
        exit 1
    fi
}
height 1100
shot light 1 1100 "$height" "file://$page"
shot dark 0 1100 "$height" "file://$page"
# A window cannot be as narrow as a phone, a frame can.
height 390
echo "<!DOCTYPE html><html style=\"color-scheme:light dark\"><body style=\"margin:0\"><iframe src=\"file://$page\" style=\"border:0;width:390px;height:${height}px\">" > "$scratch/phone.html"
shot phone 1 500 "$height" "file://$scratch/phone.html"
shot phone-dark 0 500 "$height" "file://$scratch/phone.html"
run --no-pdf-header-footer --print-to-pdf="$out/print.pdf" "file://$page"
echo "$out/print.pdf"
