//! The plot of the cliff gate, and its page.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::cliff_report::{CliffPoint, CliffReport};
use crate::html::{Cell, Page};
use crate::settings::Settings;

const SIZE: (u32, u32) = (960, 600);
const MIB: f64 = 1_048_576.0;

impl CliffReport {
    /// The points as an SVG picture: time of a step over MiB of tail, measured lines in colour, reckoned ones in grey.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
            .map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// A page with the verdict, the picture and the table.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(&self, settings: &Settings) -> Result<String, String> {
        let mut page = Page::new("What a tail costs: a decode step over the length of the tail");
        page.verdict(&self.judged);
        page.line(
            "note",
            &format!(
                "{} prompt tokens; a ring of {} slots of {:.2} MiB; it hides a tail of up to {:.1} MiB",
                self.prompt_tokens,
                self.ring_depth,
                self.slot_bytes as f64 / MIB,
                self.hidden_bytes / MIB
            ),
        );
        page.picture(&self.svg()?);
        let rows: Vec<Vec<Cell>> = self
            .points
            .iter()
            .map(|point| point.cells().map(Cell::plain).into())
            .collect();
        page.table(
            "Every point; max and sum are those of computing and copying",
            &CliffPoint::HEAD.map(str::to_owned),
            &rows,
        );
        page.settings(settings);
        Ok(page.finish())
    }

    fn draw(
        &self,
        area: DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        area.fill(&WHITE)?;
        let most_mib = self
            .points
            .iter()
            .map(|p| p.tail_bytes / MIB)
            .fold(1.0, f64::max);
        let most_ms = self
            .points
            .iter()
            .map(|p| p.op_ms.max(p.sum_ms()))
            .fold(1.0, f64::max);
        let caption = format!(
            "Decode step over the tail, link {:.3} GB/s, simulated device",
            self.link_bytes_per_s / 1e9
        );
        let mut chart = ChartBuilder::on(&area)
            .caption(caption, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..most_mib * 1.02, 0.0..most_ms * 1.08)?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .axis_desc_style(("sans-serif", 16))
            .label_style(("sans-serif", 13))
            .x_desc("tail in host memory that a step reads, MiB")
            .y_desc("time of a decode step, ms")
            .draw()?;

        let hidden = self.hidden_bytes / MIB;
        chart.draw_series(std::iter::once(Rectangle::new(
            [(0.0, 0.0), (hidden, most_ms * 1.08)],
            GREEN.mix(0.08).filled(),
        )))?;
        if hidden > 0.0 {
            let at = (hidden / 2.0, most_ms * 0.04);
            let centred = ("sans-serif", 14)
                .into_text_style(&area)
                .pos(Pos::new(HPos::Center, VPos::Bottom));
            chart.draw_series(std::iter::once(Text::new("hidden", at, centred)))?;
        }
        type Line = (&'static str, RGBColor, fn(&CliffPoint) -> f64, bool);
        let grey = RGBColor(150, 150, 150);
        let lines: [Line; 5] = [
            ("compute + copy", grey, |p| p.sum_ms(), false),
            (
                "max(compute, copy)",
                RGBColor(90, 90, 90),
                |p| p.ideal_ms(),
                false,
            ),
            ("resident (compute)", BLACK, |p| p.compute_ms, true),
            ("op schedule", RED, |p| p.op_ms, true),
            ("ring", BLUE, |p| p.ring_ms, true),
        ];
        for (name, colour, value, measured) in lines {
            let points = || {
                self.points
                    .iter()
                    .map(move |p| (p.tail_bytes / MIB, value(p)))
            };
            chart
                .draw_series(LineSeries::new(
                    points(),
                    colour.stroke_width(if measured { 2 } else { 1 }),
                ))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2))
                });
            if measured {
                chart.draw_series(points().map(|at| Circle::new(at, 3, colour.filled())))?;
            }
        }
        chart
            .configure_series_labels()
            .label_font(("sans-serif", 14))
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(grey)
            .draw()?;
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cliff_report::CliffThresholds;
    use crate::html::assert_self_contained;
    use crate::spec::Thresholds;

    #[test]
    fn the_page_holds_the_verdict_the_picture_and_every_point() {
        let thresholds = CliffThresholds::built_in().unwrap();
        let report = CliffReport::for_tests(6.0, 10.0, &thresholds).unwrap();
        let settings = Settings::new("gate cliff".into(), None, Vec::new(), Vec::new());
        let page = report.html(&settings).unwrap();
        assert_self_contained(&page);
        for word in [
            "PASS",
            "<svg",
            "op schedule",
            "<td>5.7</td>",
            "ring-over-ideal",
        ] {
            assert!(page.contains(word), "no {word:?}");
        }
    }
}
