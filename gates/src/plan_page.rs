//! The page of the plan gate, and its picture: predicted lines, measured points.

use plotters::prelude::*;

use crate::html::{Cell, Page};
use crate::picture::{self, legend};
use crate::plan_report::{PlanPoint, PlanReport};
use crate::settings::Settings;

const SIZE: (u32, u32) = (960, 560);
const MIB: f64 = 1_048_576.0;
const COLOURS: [RGBColor; 3] = [BLUE, RED, RGBColor(10, 110, 45)];

impl PlanReport {
    /// Time of a step over the tail, as an SVG picture.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self) -> Result<String, String> {
        let of_points = |value: fn(&PlanPoint) -> f64| {
            self.points
                .iter()
                .map(value)
                .filter(|value| value.is_finite())
        };
        let most_mib = of_points(|point| point.tail_bytes / MIB).fold(1.0, f64::max);
        let most_ms =
            of_points(|point| point.predicted_ms.max(point.measured_ms)).fold(1e-3, f64::max);
        let mut engines: Vec<&str> = self
            .points
            .iter()
            .map(|point| point.engine.as_str())
            .collect();
        engines.dedup();
        engines.sort_unstable();
        engines.dedup();
        picture::svg(SIZE, |area| {
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(area)
                .caption(
                    "A decode step: lines as predicted, points as measured",
                    ("sans-serif", 19),
                )
                .margin(16)
                .x_label_area_size(48)
                .y_label_area_size(64)
                .build_cartesian_2d(0.0..most_mib * 1.02, 0.0..most_ms * 1.15)?;
            chart
                .configure_mesh()
                .max_light_lines(0)
                .label_style(("sans-serif", 13))
                .axis_desc_style(("sans-serif", 15))
                .x_desc("tail that a step reads, MiB")
                .y_desc("ms a step")
                .draw()?;
            for (at, engine) in engines.iter().enumerate() {
                let colour = COLOURS[at % COLOURS.len()];
                let own = || self.points.iter().filter(|point| point.engine == *engine);
                let line = own().map(|point| (point.tail_bytes / MIB, point.predicted_ms));
                chart
                    .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
                    .label(*engine)
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(2))
                    });
                let dots = own().map(|point| (point.tail_bytes / MIB, point.measured_ms));
                chart.draw_series(dots.map(|at| Circle::new(at, 4, colour.filled())))?;
            }
            legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
            area.present()?;
            Ok(())
        })
    }

    /// A page with the verdict, the picture and the table.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(&self, settings: &Settings) -> Result<String, String> {
        let mut page = Page::new("Predicted and measured: a decode step over the tail");
        page.verdict(&self.judged);
        page.line("note", &self.rates_line());
        page.picture(&self.svg()?);
        let rows: Vec<Vec<Cell>> = self
            .points
            .iter()
            .map(|point| point.cells().map(Cell::plain).into())
            .collect();
        page.table("Every step", &PlanPoint::HEAD.map(str::to_owned), &rows);
        page.settings(settings);
        Ok(page.finish())
    }

    /// What the plans reckoned with, in a line.
    #[must_use]
    pub fn rates_line(&self) -> String {
        let rates = &self.rates;
        format!(
            "measured: link {:.2} GB/s and {:.1} us, device memory {:.0} GB/s, attention there {:.0} GB/s, {:.1} us a node",
            rates.to_device_pinned_bytes_per_s / 1e9,
            rates.link_latency_s * 1e6,
            rates.device_memory_bytes_per_s / 1e9,
            rates.device_attention_bytes_per_s / 1e9,
            rates.device_launch_s * 1e6
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_self_contained;

    #[test]
    fn the_page_holds_the_verdict_the_picture_and_every_point() {
        let report = PlanReport::for_tests(9.5, 256).unwrap();
        let settings = Settings::new("gate plan".into(), None, Vec::new(), Vec::new());
        let page = report.html(&settings).unwrap();
        assert_self_contained(&page);
        for word in [
            "PASS",
            "<svg",
            "as predicted",
            "<td>+5.3%</td>",
            "window-off",
        ] {
            assert!(page.contains(word), "no {word:?}");
        }
    }
}
