//! Draws a bar chart as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
/// X coordinate at which bars begin, and length of the longest bar.
const LEFT: f64 = 150.0;
const LONGEST: f64 = 620.0;
const BAR: f64 = 16.0;
/// The value of the longest bar. Bars of larger values are cut off, but their numbers are shown.
const MOST: f64 = 6.0;

/// One group of bars for each of `groups`, with a bar and its value for each side.
pub fn bars(title: &str, groups: &[String], sides: &[(&str, Vec<Option<f64>>)]) -> String {
    let (mut body, mut y) = (String::new(), 60.0);
    for (at, group) in groups.iter().enumerate() {
        let _written = write!(body, r#"<text x="16" y="{y}" font-weight="bold">{group}</text>"#);
        y += 10.0;
        for (name, values) in sides {
            let Some(value) = values.get(at).copied().flatten().filter(|value| value.is_finite())
            else {
                continue;
            };
            let length = value.clamp(0.0, MOST) / MOST * LONGEST;
            let middle = y + BAR - 4.0;
            let color = if name.starts_with("rerouter") { "#c2410c" } else { "#64748b" };
            let cut = if value > MOST { " →" } else { "" };
            let _written = write!(
                body,
                r#"<text x="{}" y="{middle}" text-anchor="end">{name}</text>
<rect x="{LEFT}" y="{y}" width="{length:.1}" height="{}" fill="{color}"/>
<text x="{:.1}" y="{middle}">{value:.2}{cut}</text>
"#,
                LEFT - 6.0,
                BAR - 2.0,
                LEFT + length + 6.0,
            );
            y += BAR;
        }
        y += 26.0;
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}"
 font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>
<text x="16" y="28" font-size="16">{title}</text>
{body}</svg>
"##
    )
}

/// Checks for `cargo test` that each value has a bar, and that missing values have none.
pub fn check() -> crate::Result<()> {
    let sides = [("rerouter", vec![Some(2.0), None]), ("slow", vec![Some(180.0), Some(3.0)])];
    let svg = bars("a title", &["one".to_owned(), "two".to_owned()], &sides);
    let widths: Vec<&str> = svg
        .split("<rect x")
        .skip(1)
        .filter_map(|rest| rest.split_once("width=\"")?.1.split_once('"').map(|(width, _)| width))
        .collect();
    if widths == ["206.7", "620.0", "310.0"] && svg.contains("180.00 →") {
        return Ok(());
    }
    Err(format!("bars of {widths:?} in {svg}").into())
}
