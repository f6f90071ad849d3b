//! The plot of the gate of the engines, and its page.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::engines_point::{EnginesLink, EnginesPoint};
use crate::engines_report::EnginesReport;
use crate::html::{Cell, Page};
use crate::picture::{self, GREY, Undrawn, legend};
use crate::settings::Settings;

const WIDTH: u32 = 960;
/// Of one link's plot.
const HEIGHT: u32 = 420;
const MIB: f64 = 1_048_576.0;

/// Room above the highest point.
const MARGIN: f64 = 1.08;
/// The plot is so many times as high as host and hybrid need, at most.
const HEIGHT_OF_OTHERS: f64 = 2.5;

const ORANGE: RGBColor = RGBColor(200, 110, 0);

impl EnginesReport {
    /// The points as an SVG picture, one plot a link: time of a step over MiB of tail, engines in colour, the bound dashed.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self) -> Result<String, String> {
        let n = self.links.len().max(1);
        picture::svg((WIDTH, HEIGHT * n as u32), |area| {
            area.fill(&WHITE)?;
            for (link, area) in self.links.iter().zip(area.split_evenly((n, 1))) {
                draw(link, &area)?;
            }
            area.present()?;
            Ok(())
        })
    }

    /// A page with the verdict, the picture and a table of each link.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(&self, settings: &Settings) -> Result<String, String> {
        let mut page = Page::new("Who attends to the tail: a decode step of every engine");
        page.verdict(&self.judged);
        page.picture(&self.svg()?);
        for link in &self.links {
            let rows: Vec<Vec<Cell>> = link
                .points
                .iter()
                .map(|point| point.cells().map(Cell::plain).into())
                .collect();
            page.table(&link.title(), &EnginesPoint::HEAD.map(str::to_owned), &rows);
        }
        page.line("note", EnginesPoint::LEGEND);
        page.settings(settings);
        Ok(page.finish())
    }
}

/// Name, colour and time of an engine's points.
type Line = (&'static str, RGBColor, fn(&EnginesPoint) -> f64);

const LINES: [Line; 3] = [
    ("stream", RED, |p| p.stream.ms),
    ("host", ORANGE, |p| p.host.ms),
    ("hybrid", BLUE, |p| p.hybrid.ms),
];

fn draw<'a>(
    link: &EnginesLink,
    area: &DrawingArea<SVGBackend<'a>, Shift>,
) -> Result<(), Undrawn<'a>> {
    let points = || link.points.iter();
    let most = |of: fn(&EnginesPoint) -> f64| points().map(of).fold(0.0, f64::max);
    let most_mib = most(|p| p.tail_bytes / MIB).max(1e-3);
    // Behind a slow link the device alone takes so long that the others could not be told apart; its line leaves the plot.
    let others_ms = most(|p| p.host.ms.max(p.hybrid.ms)).max(link.compute_ms);
    let most_ms = most(|p| p.stream.ms).clamp(others_ms, HEIGHT_OF_OTHERS * others_ms);
    let mut chart = ChartBuilder::on(area)
        .caption(link.title(), ("sans-serif", 19))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most_mib * 1.02, 0.0..most_ms * MARGIN)?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .x_desc("tail in host memory that a step reads, MiB")
        .y_desc("time of a decode step, ms")
        .draw()?;
    for (name, colour, ms) in LINES {
        let mut line: Vec<(f64, f64)> = points().map(|p| (p.tail_bytes / MIB, ms(p))).collect();
        line.sort_by(|one, other| one.0.total_cmp(&other.0));
        let dots = line.iter().filter(|(_, ms)| *ms <= most_ms);
        let dots = dots.map(|&at| Circle::new(at, 3, colour.filled()));
        chart.draw_series(dots)?;
        line.insert(0, (0.0, link.compute_ms));
        let line = below(line, most_ms * MARGIN);
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2)));
    }
    let crosses = points().map(|p| Cross::new((p.tail_bytes / MIB, p.auto.ms), 5, BLACK));
    chart
        .draw_series(crosses)?
        .label("auto")
        .legend(|(x, y)| Cross::new((x + 12, y), 5, BLACK));
    chart
        .draw_series(DashedLineSeries::new(
            bound(link, most_mib),
            6,
            4,
            BLACK.stroke_width(1),
        ))?
        .label("bound (dashed)")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], BLACK.stroke_width(1)));
    let computing = [(0.0, link.compute_ms), (most_mib, link.compute_ms)];
    chart
        .draw_series(LineSeries::new(computing, GREY.stroke_width(1)))?
        .label("computing alone")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], GREY.stroke_width(1)));
    legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    Ok(())
}

/// A line up to where it crosses a height.
fn below(line: Vec<(f64, f64)>, height: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for at in line {
        if at.1 <= height {
            kept.push(at);
            continue;
        }
        if let Some(&(x, y)) = kept.last() {
            let share = (height - y) / (at.1 - y);
            kept.push((x + share * (at.0 - x), height));
        }
        break;
    }
    kept
}

/// The corners of the bound: flat while copying is hidden, then rising.
fn bound(link: &EnginesLink, most_mib: f64) -> Vec<(f64, f64)> {
    let hidden_mib = link.compute_ms * link.rates.link_bytes_per_s / 1e3 / MIB;
    let (start, corner) = ((0.0, link.compute_ms), (hidden_mib, link.compute_ms));
    if hidden_mib >= most_mib {
        return vec![start, (most_mib, link.compute_ms)];
    }
    vec![
        start,
        corner,
        (
            most_mib,
            link.rates.both_ms(link.compute_ms, most_mib * MIB),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines_report::EnginesThresholds;
    use crate::html::assert_self_contained;
    use crate::spec::Thresholds;

    fn report() -> EnginesReport {
        let thresholds = EnginesThresholds::built_in().unwrap();
        EnginesReport::for_tests([24.0, 12.0, 9.0, 9.0], &thresholds).unwrap()
    }

    #[test]
    fn the_page_holds_the_verdict_the_picture_and_every_point() {
        let settings = Settings::new("gate engines".into(), None, Vec::new(), Vec::new());
        let page = report().html(&settings).unwrap();
        assert_self_contained(&page);
        for word in [
            "PASS",
            "<svg",
            "bound (dashed)",
            "<td>22.89</td>",
            "hybrid-over-bound",
            "the time is reckoned",
            "link 1 GB/s, host 3 GB/s",
        ] {
            assert!(page.contains(word), "no {word:?}");
        }
    }

    #[test]
    fn every_link_has_a_plot_of_its_own() {
        let mut report = report();
        let one = report.svg().unwrap();
        report.links.push(report.links[0].clone());
        let two = report.svg().unwrap();
        let plots = |svg: &str| svg.matches("time of a decode step").count();
        assert_eq!((plots(&one), plots(&two)), (1, 2));
    }

    #[test]
    fn a_line_ends_where_it_leaves_the_plot() {
        let line = vec![(0.0, 1.0), (1.0, 2.0), (3.0, 6.0), (4.0, 9.0)];
        assert_eq!(
            below(line.clone(), 4.0),
            [(0.0, 1.0), (1.0, 2.0), (2.0, 4.0)]
        );
        assert_eq!(below(line.clone(), 9.0), line);
        assert_eq!(below(line, 0.5), []);
    }

    #[test]
    fn the_bound_bends_where_copying_is_not_hidden_any_more() {
        let link = &report().links[0];
        let corners = bound(link, 24e6 / MIB);
        assert_eq!(corners[1], (4e6 / MIB, 4.0));
        assert!((corners[2].1 - 9.0).abs() < 1e-9, "{corners:?}");
        assert_eq!(bound(link, 1.0), [(0.0, 4.0), (1.0, 4.0)]);
    }
}
