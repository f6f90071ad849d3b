//! The plot of the budget gate, and its page: what a step takes by split, and what local layers lose by their number.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::budget::{ExactReport, LocalReport, LocalTrial, SplitResult};
use crate::budget_report::BudgetReport;
use crate::html::{Cell, Page};
use crate::picture::{self, GREY, legend};
use crate::settings::Settings;

const SIZE: (u32, u32) = (1200, 480);
/// Name, colour and points.
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);

const GREEN_DARK: RGBColor = RGBColor(10, 110, 45);

impl BudgetReport {
    /// Both levers as an SVG picture.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self) -> Result<String, String> {
        picture::svg(SIZE, |area| self.draw(area))
    }

    /// A page with the verdict, the picture, and a table of each lever.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(&self, settings: &Settings) -> Result<String, String> {
        const MIB: f64 = 1_048_576.0;
        let mut page = Page::new("A budget of device memory");
        page.verdict(&self.judged);
        page.picture(&self.svg()?);
        page.table(
            &format!(
                "Exact: {:.1} of {:.1} MiB on the device, split; a step with all of it there takes {:.2} ms. Chosen: {} resident layers",
                self.exact.budget_bytes as f64 / MIB,
                self.exact.cache_bytes as f64 / MIB,
                self.exact.compute_ms,
                self.exact.splits[self.exact.chosen].split.resident_layers
            ),
            &SplitResult::HEAD.map(str::to_owned),
            &rows(self.exact.splits.iter().map(|split| split.cells().to_vec())),
        );
        if let Some(local) = &self.local {
            let head: Vec<String> = LocalTrial::HEAD
                .iter()
                .chain(&["verdict"])
                .map(|&name| name.to_owned())
                .collect();
            page.table(
                "Lossy: sets of the most local layers, in the order in which they were tried",
                &head,
                &rows(local.trials.iter().map(|trial| {
                    let mut cells = trial.cells().to_vec();
                    cells.push(trial.verdict());
                    cells
                })),
            );
            page.line("note", &accepted(local));
        }
        page.settings(settings);
        Ok(page.finish())
    }

    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        area.fill(&WHITE)?;
        let panels = area.split_evenly((1, 2));
        exact(&panels[0], &self.exact)?;
        if let Some(local) = &self.local {
            lossy(&panels[1], local)?;
        }
        area.present()?;
        Ok(())
    }
}

fn exact<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    report: &ExactReport,
) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let splits = &report.splits;
    let most_layers = splits
        .iter()
        .map(|split| split.split.resident_layers)
        .max()
        .unwrap_or(0);
    let most_ms = splits
        .iter()
        .map(|split| split.measured_ms.max(split.predicted_ms))
        .fold(report.compute_ms, f64::max);
    let width = f64::from(most_layers.max(1));
    let mut chart = ChartBuilder::on(area)
        .caption("Exact: the same budget, split", ("sans-serif", 19))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..width * 1.05, 0.0..most_ms * 1.15)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .label_style(("sans-serif", 13))
        .x_label_formatter(&|value| format!("{value:.0}"))
        .x_desc("first layers that are resident")
        .y_desc("ms a step")
        .draw()?;
    let lines: [Line; 3] = [
        ("measured", BLUE, points(report, |split| split.measured_ms)),
        ("reckoned", RED, points(report, |split| split.predicted_ms)),
        (
            "every cell on the device",
            GREY,
            vec![(0.0, report.compute_ms), (width, report.compute_ms)],
        ),
    ];
    for (name, colour, line) in lines {
        chart
            .draw_series(LineSeries::new(
                line.iter().copied(),
                colour.stroke_width(2),
            ))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)));
        chart.draw_series(line.iter().map(|&at| Circle::new(at, 4, colour.filled())))?;
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)?;
    Ok(())
}

fn points(report: &ExactReport, value: impl Fn(&SplitResult) -> f64) -> Vec<(f64, f64)> {
    report
        .splits
        .iter()
        .map(|split| (f64::from(split.split.resident_layers), value(split)))
        .collect()
}

fn lossy<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    report: &LocalReport,
) -> Result<(), Box<dyn std::error::Error + 'a>> {
    const LEAST: f64 = 1e-6;
    let most = report
        .trials
        .iter()
        .map(|trial| trial.layers.len())
        .max()
        .unwrap_or(1);
    let highest = report
        .trials
        .iter()
        .map(|trial| trial.kld_mean)
        .fold(LEAST * 10.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("Lossy: local layers", ("sans-serif", 19))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..most as f64 * 1.05, (LEAST..highest * 3.0).log_scale())?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .label_style(("sans-serif", 13))
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0e}"))
        .x_desc("local layers, the most local ones first")
        .y_desc("mean divergence, nats")
        .draw()?;
    for (name, colour, accepted) in [("accepted", GREEN_DARK, true), ("rejected", RED, false)] {
        let of = report
            .trials
            .iter()
            .filter(move |trial| trial.rejected.is_empty() == accepted);
        let dots = of.map(move |trial| {
            let at = (trial.layers.len() as f64, trial.kld_mean.max(LEAST));
            Circle::new(at, 6, colour.filled())
        });
        chart
            .draw_series(dots)?
            .label(name)
            .legend(move |(x, y)| Circle::new((x + 12, y), 6, colour.filled()));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    Ok(())
}

fn rows(cells: impl Iterator<Item = Vec<String>>) -> Vec<Vec<Cell>> {
    cells
        .map(|row| row.into_iter().map(Cell::plain).collect())
        .collect()
}

/// What was accepted, in words.
fn accepted(local: &LocalReport) -> String {
    match &local.accepted {
        Some(found) => {
            let layers: Vec<String> = found.layers().iter().map(u32::to_string).collect();
            format!(
                "Accepted as local, of {} tokens: layers {}.",
                found.cells(),
                layers.join(",")
            )
        }
        None => "No layer is accepted as local.".into(),
    }
}

impl LocalReport {
    /// What was accepted, in words.
    #[must_use]
    pub fn accepted_in_words(&self) -> String {
        accepted(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget_report::BudgetThresholds;
    use crate::html::assert_self_contained;
    use crate::spec::Thresholds;

    #[test]
    fn a_page_shows_both_levers_and_why_a_set_was_rejected() {
        let exact = ExactReport::for_tests(vec![
            SplitResult::for_tests(10.0, 10.5),
            SplitResult::for_tests(11.0, 10.4),
        ]);
        let local = LocalReport {
            order: Vec::new(),
            trials: vec![
                LocalTrial::for_tests(3, vec!["it lost <a needle>".into()], 0),
                LocalTrial::for_tests(1, Vec::new(), 0),
            ],
            accepted: None,
        };
        let thresholds = BudgetThresholds::built_in().unwrap();
        let report = BudgetReport::judge(exact, Some(local), &thresholds);
        let settings = Settings::new("gate budget".into(), None, Vec::new(), Vec::new());
        let page = report.html(&settings).unwrap();
        assert_self_contained(&page);
        for word in [
            "PASS",
            "<svg",
            "it lost &lt;a needle&gt;",
            "No layer is accepted",
        ] {
            assert!(page.contains(word), "no {word}");
        }
    }
}
