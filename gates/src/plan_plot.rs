//! The plot of a plan: time of a token over the depth, engine by engine.

use plotters::prelude::*;

use crate::picture::{self, GREY, legend};

const SIZE: (u32, u32) = (960, 560);
const COLOURS: [RGBColor; 3] = [BLUE, RED, RGBColor(10, 110, 45)];

/// One engine's line.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanCurve {
    /// Its name.
    pub name: String,
    /// Tokens in the cache, and milliseconds.
    pub points: Vec<(f64, f64)>,
}

impl PlanCurve {
    /// Without points yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            points: Vec::new(),
        }
    }
}

/// The engines' lines in colours, and the last one, to compare with, in grey; as an SVG picture.
///
/// # Errors
/// When the picture cannot be drawn.
pub fn plan_svg(caption: &str, curves: &[PlanCurve]) -> Result<String, String> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let deepest = points().map(|(depth, _)| *depth).fold(1.0, f64::max);
    let most_ms = points().map(|(_, ms)| *ms).fold(1e-3, f64::max);
    picture::svg(SIZE, |area| {
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(caption, ("sans-serif", 19))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..deepest * 1.02, 0.0..most_ms * 1.12)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 15))
            .x_label_formatter(&|depth| format!("{depth:.0}"))
            .x_desc("tokens in the cache")
            .y_desc("ms a token")
            .draw()?;
        for (at, curve) in curves.iter().enumerate() {
            let last = at + 1 == curves.len();
            let colour = if last {
                GREY
            } else {
                COLOURS[at % COLOURS.len()]
            };
            chart
                .draw_series(LineSeries::new(
                    curve.points.iter().copied(),
                    colour.stroke_width(2),
                ))?
                .label(&curve.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(2))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
        area.present()?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_named() {
        let curve = |name: &str, ms: f64| PlanCurve {
            name: name.into(),
            points: vec![(0.0, ms), (1000.0, 3.0 * ms)],
        };
        let svg = plan_svg("a plan", &[curve("stream", 3.0), curve("all there", 1.0)]).unwrap();
        for word in ["<svg", "a plan", "stream", "all there", "ms a token"] {
            assert!(svg.contains(word), "no {word:?}");
        }
        // A line and its sign in the legend, in each colour.
        for colour in ["#0000FF", "#8C8C8C"] {
            assert!(
                svg.matches(&format!("stroke=\"{colour}\"")).count() >= 2,
                "{colour}"
            );
        }
        assert!(plan_svg("nothing", &[]).is_ok());
    }
}
