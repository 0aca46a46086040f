//! The shell of a page that asks for nothing else: its head, its style, foreign text in it.

use super::paint::{self, EXT2, FAINT, FS2, GRID, INK, PAPER, ROTATION, SEEK, TRANSFER, hex};

/// `text` as HTML, in elements and attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A page up to its first heading, which is the title (foreign text); `more` is style of its own. The
/// browser is told to fetch nothing whatever the page says.
pub(crate) fn begin(title: &str, more: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{}{more}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        style()
    )
}

/// What ends it.
pub(crate) const END: &str = "</main>\n</body>\n</html>\n";

/// The colours as custom properties, light and dark.
fn colors() -> [String; 2] {
    let named = [
        ("ink", INK),
        ("faint", FAINT),
        ("line", GRID),
        ("seek", SEEK),
        ("rotation", ROTATION),
        ("transfer", TRANSFER),
        ("ext2", EXT2),
        ("fs2", FS2),
    ];
    let light = named.iter().map(|(name, c)| format!("--{name}:{};", hex(*c)));
    let dark = named.iter().map(|(name, c)| format!("--{name}:{};", paint::dark(*c)));
    [light.collect(), dark.collect()]
}

fn style() -> String {
    let [light, dark] = colors();
    let [paper, dark_paper] = PAPER;
    format!(
        ":root{{color-scheme:light dark;{light}--paper:{paper};--back:#f4f6f8}}\n\
         @media screen and (prefers-color-scheme:dark){{:root{{{dark}--paper:{dark_paper};--back:#0d1117}}}}\n\
         body{{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}}\n\
         main{{max-width:920px;margin:0 auto;padding:24px 16px 64px}}\n\
         h1{{font-size:1.6rem;line-height:1.25;margin:0 0 .5em;overflow-wrap:anywhere}}\
         h2{{font-size:1.1rem;margin:2em 0 .5em}}\n\
         .sum{{font-size:1.05rem}}\n\
         dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:1em 0;font-size:.9rem}}\n\
         dt{{color:var(--faint)}}dd{{margin:0;overflow-wrap:anywhere}}\n\
         figure{{margin:0;padding:12px;background:var(--paper);border:1px solid var(--line);border-radius:8px}}\n\
         .pic{{overflow-x:auto}}.pic svg{{display:block;max-width:100%;min-width:640px;height:auto}}\n\
         figcaption{{color:var(--faint);font-size:.85rem;padding-top:8px}}\n\
         .wide{{overflow-x:auto}}table{{border-collapse:collapse;width:100%;font-size:.85rem;\
         font-variant-numeric:tabular-nums;background:var(--paper)}}\n\
         th,td{{text-align:right;padding:4px 8px;border-bottom:1px solid var(--line)}}\
         th{{font-weight:600;vertical-align:bottom}}\n\
         @media print{{body{{background:none}}figure,tr{{break-inside:avoid}}h2,h3{{break-after:avoid}}\
         table{{font-size:.65rem}}th,td{{padding:2px 3px}}}}\n"
    )
}

/// For tests of pages.
#[cfg(test)]
pub(crate) mod check {
    /// The elements of `html` in order; panics where they are not closed in order. Knows no more
    /// than what these pages use: no comments, no optional end tags, no `>` in attributes.
    pub(crate) fn elements(html: &str) -> Vec<String> {
        let mut open = Vec::new();
        let mut seen = Vec::new();
        let mut rest = html;
        while let Some(start) = rest.find('<') {
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            let name: String =
                tag.trim_start_matches('/').chars().take_while(|c| c.is_alphanumeric()).collect();
            if tag.starts_with('!')
                || tag.starts_with('?')
                || name == "meta"
                || name == "br"
                || tag.ends_with('/')
            {
            } else if tag.starts_with('/') {
                assert_eq!(open.pop().as_ref(), Some(&name), "before {}", &rest[..rest.len().min(80)]);
            } else {
                open.push(name.clone());
            }
            seen.push(name);
        }
        assert!(open.is_empty(), "not closed: {open:?}");
        seen
    }

    /// What a tag says of `name`; panics where that is no number.
    fn number(tag: &str, name: &str) -> Option<f64> {
        let value = tag.split_once(&format!(" {name}=\""))?.1.split('"').next()?;
        Some(value.parse().unwrap_or_else(|e| panic!("{name}=\"{value}\": {e}")))
    }

    /// Panics where a text of a picture lies beyond its edges, a character taken to be 0.576 as wide as high, as most digits are.
    /// A tag ends its line or not; what is turned is turned a quarter to the left.
    pub(crate) fn texts_are_inside(html: &str) {
        for svg in html.split("<svg ").skip(1) {
            let (tag, mut rest) = svg.split_once('>').expect("a tag ends");
            let Some(size) =
                tag.split_once("viewBox=\"0 0 ").map(|(_, size)| size.split('"').next().unwrap_or_default())
            else {
                panic!("no viewBox: {tag}");
            };
            let (width, height) = size.split_once(' ').expect("two sizes");
            let (width, height): (f64, f64) =
                (width.parse().expect("a number"), height.parse().expect("a number"));
            rest = rest.split("</svg>").next().unwrap_or_default();
            while let Some((_, text)) = rest.split_once("<text") {
                let (tag, after) = text.split_once('>').expect("a tag ends");
                let (word, after) = after.split_once('<').expect("a text ends");
                rest = after;
                let plain = ["lt", "gt", "amp", "quot", "#39"]
                    .iter()
                    .fold(word.trim().to_owned(), |w, e| w.replace(&format!("&{e};"), "x"));
                let high = number(tag, "font-size").unwrap_or(12.5);
                let wide = plain.chars().count() as f64 * high * 0.576;
                let (x, y) = (number(tag, "x").expect("a place"), number(tag, "y").expect("a place"));
                let before = match tag {
                    t if t.contains("text-anchor=\"end\"") => wide,
                    t if t.contains("text-anchor=\"middle\"") => wide / 2.0,
                    _ => 0.0,
                };
                let (from, to, along) = match tag.contains("rotate(270") {
                    true => (y + before - wide, y + before, height),
                    false => (x - before, x - before + wide, width),
                };
                let across = if along == width { (y, height) } else { (x, width) };
                assert!(
                    from >= -0.1 && to <= along + 0.1 && (0.0..=across.1).contains(&across.0),
                    "{word:?} is at {x} {y}, from {from:.1} to {to:.1} of {along}: {tag}"
                );
            }
        }
    }

    /// Panics where a page could ask for something or run something, or cuts off a text of a picture.
    pub(crate) fn asks_for_nothing(html: &str) {
        texts_are_inside(html);
        let seen = elements(html);
        for never in ["script", "link", "img", "iframe", "object", "image", "use", "a"] {
            assert!(!seen.iter().any(|n| n == never), "{never}");
        }
        let html = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for never in ["http:", "https:", "url(", "@import", "src=", "href="] {
            assert!(!html.contains(never), "{never}");
        }
    }
}
