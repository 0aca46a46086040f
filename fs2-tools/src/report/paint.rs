//! Colours and text of the pictures.
//!
//! plotters writes colours as attributes, and a style sheet in each picture gives every one its dark
//! counterpart; so a picture's colours are those below and no others.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Why a picture is missing.
pub(super) type Fault = Box<dyn std::error::Error>;

/// A drawing area of a picture.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(0x22, 0x2a, 0x33);
/// Text of less weight.
pub(super) const FAINT: RGBColor = RGBColor(0x5c, 0x66, 0x70);
/// Lines behind the data.
pub(super) const GRID: RGBColor = RGBColor(0xe1, 0xe5, 0xe9);
/// Seek; a palette that eyes of every kind tell apart (Okabe and Ito).
pub(super) const SEEK: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// Rotational latency.
pub(super) const ROTATION: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
/// Transfer.
pub(super) const TRANSFER: RGBColor = RGBColor(0x00, 0x9e, 0x73);
/// ext2.
pub(super) const EXT2: RGBColor = RGBColor(0x9a, 0xa3, 0xad);
/// FS².
pub(super) const FS2: RGBColor = RGBColor(0x00, 0x72, 0xb2);

/// Background, light and dark.
pub(super) const PAPER: [&str; 2] = ["#ffffff", "#161b22"];

/// Each colour's counterpart on dark paper.
const DARK: [(RGBColor, &str); 8] = [
    (INK, "#e3e8ee"),
    (FAINT, "#9aa5b1"),
    (GRID, "#2c343d"),
    (SEEK, "#f07f2e"),
    (ROTATION, "#56b4e9"),
    (TRANSFER, "#1fbf92"),
    (EXT2, "#7b8590"),
    (FS2, "#4aa3df"),
];

/// A colour's counterpart on dark paper.
pub(super) fn dark(color: RGBColor) -> &'static str {
    DARK.iter().find(|(light, _)| *light == color).map_or("currentColor", |(_, dark)| dark)
}

/// As plotters writes it.
pub(super) fn hex(c: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2)
}

/// The style sheet of a picture.
fn style() -> String {
    let mut out = format!(
        "<style>svg.fs2{{background:{}}}@media screen and (prefers-color-scheme:dark){{svg.fs2{{background:{}}}",
        PAPER[0], PAPER[1]
    );
    for (light, dark) in DARK {
        let light = hex(light);
        out += &format!(".fs2 [fill=\"{light}\"]{{fill:{dark}}}.fs2 [stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    out + "}</style>"
}

/// Draws a picture: `say` is what it shows, for those who cannot see it.
pub(super) fn picture(
    (width, height): (u32, u32),
    say: &str,
    draw: impl FnOnce(&Area<'_>) -> Result<(), Fault>,
) -> Result<String, Fault> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        draw(&root)?;
        root.present()?;
    }
    let say = super::page::escape(say);
    let tag = format!("<svg class=\"fs2\" role=\"img\" aria-label=\"{say}\" ");
    let svg = svg.replacen("<svg ", &tag, 1);
    Ok(svg.replacen(">\n", &format!(">\n{}\n", style()), 1))
}

/// Which part of a text lies at its position.
pub(super) fn at(h: HPos, v: VPos) -> Pos {
    Pos::new(h, v)
}

/// Text of a size in pixels.
pub(super) fn text(px: f64, color: RGBColor, pos: Pos) -> TextStyle<'static> {
    // plotters divides by this what it takes for a size in points.
    ("sans-serif", px * 1.24).into_font().color(&color).pos(pos)
}

/// Coloured squares with names in a row from `x`, at height `y`.
pub(super) fn legend(root: &Area<'_>, mut x: i32, y: i32, names: &[(&str, RGBColor)]) -> Result<(), Fault> {
    for (name, color) in names {
        root.draw(&Rectangle::new([(x, y - 5), (x + 11, y + 6)], color.filled()))?;
        root.draw_text(name, &text(12.0, INK, at(HPos::Left, VPos::Center)), (x + 17, y + 1))?;
        x += 17 + 7 * name.chars().count() as i32 + 20;
    }
    Ok(())
}

/// A number on an axis: no more digits than the steps need.
pub(super) fn axis_number(x: f64) -> String {
    let rounded = (x * 1000.0).round() / 1000.0;
    format!("{rounded}")
}
