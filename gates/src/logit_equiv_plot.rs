//! The plot of the logit gate, and its page.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::html::{Cell, Page};
use crate::logit_equiv_report::{LogitEquivReport, LogitEquivThresholds};
use crate::metrics::Comparison;
use crate::picture::{GREY, legend};
use crate::settings::Settings;

const SIZE: (u32, u32) = (1200, 520);
/// What is less than this is drawn as nothing: a scale of powers of ten has no zero.
const LEAST: f64 = 1e-9;
/// Windows beyond the last colour begin anew.
const COLOURS: [RGBColor; 4] = [BLUE, RED, RGBColor(0, 140, 70), RGBColor(150, 60, 170)];

/// Name, colour, size of its dot, and the value. The last one lies on the others.
type Figure = (&'static str, RGBColor, i32, fn(&Comparison) -> f64);

const FIGURES: [Figure; 3] = [
    ("largest", RGBColor(245, 190, 130), 9, |found| found.kld_max),
    ("99th percentile", RGBColor(90, 160, 240), 6, |found| {
        found.kld_p99
    }),
    ("mean, which is judged", BLACK, 5, |found| found.kld_mean),
];

impl LogitEquivReport {
    /// The runs as an SVG picture: how far each is from stock, and where.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self, thresholds: &LogitEquivThresholds) -> Result<String, String> {
        let mut text = String::new();
        let floor = self.floor(thresholds);
        self.draw(
            &SVGBackend::with_string(&mut text, SIZE).into_drawing_area(),
            floor,
        )
        .map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// A page with the verdict, the picture and every table.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(
        &self,
        settings: &Settings,
        thresholds: &LogitEquivThresholds,
    ) -> Result<String, String> {
        let mut page = Page::new("Logits of a spilled cache, a resident one and llama.cpp's own");
        page.verdict(&self.judged);
        page.line(
            "note",
            &format!(
                "{} prompt tokens, {} decoded one by one; {} positions compared. Stock against stock is llama.cpp's own attention with other thread counts and ubatches: its noise.",
                self.prompt_tokens,
                self.decoded_tokens,
                self.positions.len()
            ),
        );
        page.picture(&self.svg(thresholds)?);
        let head: Vec<String> = std::iter::once("")
            .chain(Comparison::HEAD)
            .map(str::to_owned)
            .collect();
        let rows: Vec<Vec<Cell>> = self
            .rows()
            .into_iter()
            .map(|(name, found)| {
                let figures = found.cells().map(Cell::plain);
                std::iter::once(Cell::plain(name)).chain(figures).collect()
            })
            .collect();
        page.table(
            "Divergence (KLD) in nats from the one behind \"against\"; top: share of the most probable tokens that both name",
            &head,
            &rows,
        );
        for run in &self.spilled {
            page.line("note", &run.residency);
        }
        page.settings(settings);
        Ok(page.finish())
    }

    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        floor: f64,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        area.fill(&WHITE)?;
        let (left, right) = area.split_horizontally(600);
        self.by_run(&left, floor)?;
        self.by_position(&right)?;
        area.present()?;
        Ok(())
    }

    /// Every run beside stock.
    fn against_stock(&self) -> Vec<(String, &Comparison)> {
        let mut runs = vec![
            ("stock again".to_owned(), &self.stock_vs_stock),
            ("resident".to_owned(), &self.resident_vs_stock),
        ];
        let windows = self.spilled.iter();
        runs.extend(windows.map(|run| (format!("window {}", run.window_cells), &run.vs_stock)));
        runs
    }

    fn by_run<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
        floor: f64,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let runs = self.against_stock();
        let last = runs.len() as f64;
        let all = || {
            let figures = FIGURES.iter().map(|(_, _, _, value)| value);
            let all = figures.flat_map(|value| runs.iter().map(|(_, found)| value(found)));
            all.filter(|kld| kld.is_finite() && *kld > LEAST)
        };
        let floor = floor.max(LEAST);
        let (least, most) = (all().fold(floor, f64::min), all().fold(floor, f64::max));
        let mut chart = ChartBuilder::on(area)
            .caption("divergence from stock, by run", ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(-1.0..last, (least * 0.3..most * 10.0).log_scale())?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .disable_x_mesh()
            .x_labels(runs.len() + 2)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|at| {
                let whole = *at >= 0.0 && (at - at.round()).abs() < 1e-6;
                let run = runs.get(at.round() as usize).filter(|_| whole);
                run.map_or(String::new(), |(name, _)| name.clone())
            })
            .y_label_formatter(&|value| format!("{value:.0e}"))
            .y_desc("nats")
            .draw()?;
        let limit = LineSeries::new([(-1.0, floor), (last, floor)], GREY.stroke_width(2));
        chart
            .draw_series(limit)?
            .label("threshold of the mean")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], GREY.stroke_width(2)));
        for (name, colour, size, value) in FIGURES {
            let points = runs.iter().enumerate().filter_map(|(at, (_, found))| {
                let value = value(found);
                value
                    .is_finite()
                    .then_some((at as f64, value.max(least * 0.5)))
            });
            chart
                .draw_series(points.map(|at| Circle::new(at, size, colour.filled())))?
                .label(name)
                .legend(move |(x, y)| Circle::new((x + 10, y), 5, colour.filled()));
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)?;
        Ok(())
    }

    fn by_position<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let runs = self.against_stock();
        let last = self.positions.last().copied().unwrap_or(0) as f64;
        let all = runs.iter().flat_map(|(_, found)| &found.max_abs_at);
        let most = all
            .copied()
            .filter(|apart| apart.is_finite())
            .fold(1e-6, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(
                "largest difference of a logit from stock, by position",
                ("sans-serif", 18),
            )
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..last * 1.02 + 1.0, 0.0..most * 1.3)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|value| format!("{value:.0}"))
            .x_desc("position in the text")
            .draw()?;
        for (at, (name, found)) in runs.iter().enumerate() {
            // The same bits give the same line, so that the first ones are drawn wide, and the others on them.
            let (colour, width) = match at {
                0 => (RGBColor(200, 200, 200), 3),
                1 => (RGBColor(250, 205, 120), 7),
                _ => (COLOURS[(at - 2) % COLOURS.len()], 1),
            };
            let points = self.positions.iter().zip(&found.max_abs_at);
            let line = points
                .filter(|(_, apart)| apart.is_finite())
                .map(|(position, apart)| (*position as f64, *apart));
            chart
                .draw_series(LineSeries::new(line, colour.stroke_width(width)))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(width))
                });
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_self_contained;
    use crate::spec::Thresholds;

    #[test]
    fn the_page_holds_the_verdict_the_picture_and_every_run() {
        let thresholds = LogitEquivThresholds::built_in().unwrap();
        let report = LogitEquivReport::for_tests(0.1, 0.1, 0.0).judge(&thresholds);
        let settings = Settings::new("gate logit-equiv".into(), None, Vec::new(), Vec::new());
        let page = report.html(&settings, &thresholds).unwrap();
        assert_self_contained(&page);
        for word in [
            "PASS",
            "<svg",
            "window 64 against resident",
            "by position",
            "stock again",
            "floor-factor",
        ] {
            assert!(page.contains(word), "no {word:?}");
        }
    }

    #[test]
    fn runs_without_any_difference_and_without_numbers_are_drawn() {
        let mut thresholds = LogitEquivThresholds::built_in().unwrap();
        let mut report = LogitEquivReport::for_tests(0.0, 0.0, 0.0);
        assert!(report.svg(&thresholds).unwrap().contains("window 64"));
        thresholds.floor_least.value = 0.0;
        assert!(report.svg(&thresholds).unwrap().contains("window 64"));
        report.spilled[0].vs_stock.kld_max = f64::NAN;
        report.spilled[0].vs_stock.max_abs_at[0] = f64::INFINITY;
        assert!(report.svg(&thresholds).unwrap().contains("window 64"));
    }
}
