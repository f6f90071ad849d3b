//! The plot of the shift gate, one panel a series, and its page.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::html::{Cell, Page};
use crate::picture::{self, GREY, legend};
use crate::settings::Settings;
use crate::shift_report::{ShiftErrors, ShiftReport};
use crate::shift_series::ShiftSeries;

const SIZE: (u32, u32) = (1200, 860);

/// Name, colour, width, and what is drawn. Where two lines lie on each other, the thin one is drawn above.
type Line = (&'static str, RGBColor, u32, fn(&ShiftErrors) -> Option<f64>);

const LINES: [Line; 6] = [
    ("q8_0, llama.cpp", RGBColor(245, 190, 130), 6, |e| {
        e.q8_0_stock
    }),
    ("q8_0, rolling-kv", RED, 2, |e| Some(e.q8_0)),
    ("f16, llama.cpp", RGBColor(150, 200, 250), 6, |e| {
        Some(e.f16_stock)
    }),
    ("f16, rolling-kv", BLUE, 2, |e| Some(e.f16)),
    ("f32, llama.cpp", BLACK, 2, |e| Some(e.f32_stock)),
    ("fresh f32 keys, beside exact ones", GREY, 2, |e| {
        e.fresh_exact
    }),
];

impl ShiftReport {
    /// The points as an SVG picture: error over distance, target, parts and count.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self) -> Result<String, String> {
        picture::svg(SIZE, |area| self.draw(area))
    }

    /// A page with the verdict, the picture and the table.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(&self, settings: &Settings) -> Result<String, String> {
        let mut page = Page::new("Keys moved to another position, beside keys made there");
        page.verdict(&self.judged);
        page.line(
            "note",
            &format!(
                "{} keys a point. Without a move f16 is {:.2e} off f32, and q8_0 {:.2e}.",
                self.keys, self.f16_stored, self.q8_0_stored
            ),
        );
        page.picture(&self.svg()?);
        let rows: Vec<Vec<Cell>> = self
            .points
            .iter()
            .map(|errors| errors.cells().map(Cell::plain).into())
            .collect();
        page.table(
            "Root mean square of the error over that of the keys (max: of one channel)",
            &ShiftErrors::HEAD.map(str::to_owned),
            &rows,
        );
        page.settings(settings);
        Ok(page.finish())
    }

    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        area.fill(&WHITE)?;
        let area = area.titled(
            "Keys moved to another position, beside keys made there",
            ("sans-serif", 24),
        )?;
        let panels = [
            (
                ShiftSeries::Distance,
                "one move to position 16: positions it goes",
            ),
            (
                ShiftSeries::Target,
                "one move of 256 positions: position it reaches",
            ),
            (
                ShiftSeries::Parts,
                "51,200 positions to position 16: moves it is cut into",
            ),
            (
                ShiftSeries::Count,
                "moves of 256 positions to position 16: how many",
            ),
        ];
        for (panel, (series, what)) in area.split_evenly((2, 2)).iter().zip(panels) {
            self.panel(panel, series, what)?;
        }
        area.present()?;
        Ok(())
    }

    fn panel<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        series: ShiftSeries,
        what: &str,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let points: Vec<&ShiftErrors> = self
            .points
            .iter()
            .filter(|errors| errors.point.series == series)
            .collect();
        let most = points
            .iter()
            .map(|errors| errors.point.varied())
            .fold(2.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(what, ("sans-serif", 17))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d((1.0..most * 1.2).log_scale(), (1e-8..100.0).log_scale())?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|value| format!("{value:.0}"))
            .y_label_formatter(&|value| format!("{value:.0e}"))
            .y_desc("error, rms over rms")
            .draw()?;
        for (name, colour, width, value) in LINES {
            let line = || {
                points.iter().filter_map(move |errors| {
                    value(errors)
                        .filter(|value| value.is_finite())
                        .map(|value| (errors.point.varied(), value.max(1e-8)))
                })
            };
            chart
                .draw_series(LineSeries::new(line(), colour.stroke_width(width)))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(width))
                });
            chart.draw_series(line().map(|at| Circle::new(at, 3, colour.filled())))?;
        }
        if series == ShiftSeries::Distance {
            legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_self_contained;
    use crate::shift_report::ShiftThresholds;
    use crate::spec::Thresholds;

    #[test]
    fn the_page_holds_the_verdict_the_picture_and_every_point() {
        let thresholds = ShiftThresholds::built_in().unwrap();
        let report = ShiftReport::for_tests(3e-4, 8e-3, &thresholds);
        let settings = Settings::new("gate shift".into(), None, Vec::new(), Vec::new());
        let page = report.html(&settings).unwrap();
        assert_self_contained(&page);
        for word in [
            "PASS",
            "<svg",
            "f16, rolling-kv",
            "<td>8.00e-3</td>",
            "over-stock",
        ] {
            assert!(page.contains(word), "no {word:?}");
        }
    }
}
