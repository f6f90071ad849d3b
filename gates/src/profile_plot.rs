//! The plot of a locality profile, two heat maps, and its page.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::html::{Cell, Page};
use crate::picture;
use crate::profile::{HeadProfile, ProfileReport};
use crate::settings::Settings;

const SIZE: (u32, u32) = (1200, 760);

/// A share as a colour, from white over blue to black.
fn heat(share: f64) -> RGBColor {
    // Small shares matter, so the scale is one of square roots.
    let strength = share.clamp(0.0, 1.0).sqrt();
    let channel = |full: f64| (255.0 * (1.0 - strength * full)) as u8;
    RGBColor(channel(1.0), channel(0.85), channel(0.45))
}

impl ProfileReport {
    /// The heads as an SVG picture: where each layer's weight lies, and how much of each head's lies far away.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn svg(&self) -> Result<String, String> {
        picture::svg(SIZE, |area| self.draw(area))
    }

    /// A page with the picture and the table.
    ///
    /// # Errors
    /// When the picture cannot be drawn.
    pub fn html(&self, settings: &Settings) -> Result<String, String> {
        let mut page = Page::new("Where each layer and head of a model looks");
        page.line("note", &self.summary());
        page.picture(&self.svg()?);
        let rows: Vec<Vec<Cell>> = self
            .layers()
            .into_iter()
            .map(|layer| self.cells(layer).map(Cell::plain).into())
            .collect();
        page.table(&self.caption(), &Self::HEAD.map(str::to_owned), &rows);
        page.settings(settings);
        Ok(page.finish())
    }

    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        area.fill(&WHITE)?;
        let area = area.titled(
            &format!(
                "Where attention looks, over a text of {} tokens",
                self.length
            ),
            ("sans-serif", 24),
        )?;
        let (left, right) = area.split_horizontally(700);
        self.by_distance(&left)?;
        self.by_head(&right)?;
        area.present()?;
        Ok(())
    }

    fn by_distance<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let layers = self.layers();
        let bins = self.bins.clone();
        let mut chart = ChartBuilder::on(area)
            .caption(
                "share of a layer's weight by distance from the query (mean of its heads)",
                ("sans-serif", 16),
            )
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(52)
            .build_cartesian_2d(0..bins.len() as i32, 0..layers.len() as i32)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(bins.len())
            .label_style(("sans-serif", 12))
            .x_label_formatter(&|bin| {
                bins.get(*bin as usize)
                    .map_or(String::new(), ToString::to_string)
            })
            .x_desc("distance of at least, positions")
            .y_desc("layer")
            .draw()?;
        for (row, &layer) in layers.iter().enumerate() {
            for bin in 0..self.bins.len() {
                let share = self.layer(layer, |head| head.mass[bin]);
                chart.draw_series(std::iter::once(cell(bin, row, share)))?;
            }
        }
        Ok(())
    }

    fn by_head<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + 'a>> {
        let layers = self.layers();
        let heads = self
            .heads
            .iter()
            .map(|head| head.head + 1)
            .max()
            .unwrap_or(1);
        let mut chart = ChartBuilder::on(area)
            .caption(
                "share of a head's weight 256 positions away and farther",
                ("sans-serif", 16),
            )
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(52)
            .build_cartesian_2d(0..heads as i32, 0..layers.len() as i32)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .label_style(("sans-serif", 12))
            .x_desc("head (a dot: looks at the needle)")
            .y_desc("layer")
            .draw()?;
        for head in &self.heads {
            let row = layers
                .iter()
                .position(|layer| *layer == head.layer)
                .unwrap_or(0);
            let share = head.beyond_256;
            chart.draw_series(std::iter::once(cell(head.head as usize, row, share)))?;
            if finds(head) {
                let at = (head.head as i32, row as i32);
                chart.draw_series(std::iter::once(
                    EmptyElement::at(at) + Circle::new((12, -8), 4, RED.filled()),
                ))?;
            }
        }
        Ok(())
    }
}

/// A head that puts this share of the weight of an asking query on the needle helps to find it.
const FINDS: f64 = 0.1;

fn finds(head: &HeadProfile) -> bool {
    head.needle >= FINDS
}

fn cell(column: usize, row: usize, share: f64) -> Rectangle<(i32, i32)> {
    let (x, y) = (column as i32, row as i32);
    Rectangle::new([(x, y), (x + 1, y + 1)], heat(share).filled())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_self_contained;

    #[test]
    fn the_page_holds_the_picture_and_every_layer() {
        let head = |layer| HeadProfile {
            layer,
            head: 0,
            mass: vec![0.5, 0.25, 0.25],
            beyond: vec![0.5, 0.25, 0.25],
            first: 0.125,
            within_3: 0.5,
            beyond_64: 0.0,
            beyond_256: 0.0,
            beyond_1024: 0.0,
            needle: 0.25,
        };
        let report = ProfileReport {
            length: 64,
            first_positions: 4,
            first_query: 16,
            bins: vec![0, 1, 2],
            heads: vec![head(0), head(1)],
        };
        let options = vec![("ctx".to_owned(), "64".to_owned())];
        let settings = Settings::new("profile".into(), None, options, Vec::new());
        let page = report.html(&settings).unwrap();
        assert_self_contained(&page);
        for word in [
            "<svg",
            "<td>12.5</td>",
            "best head",
            "<td>ctx</td><td>64</td>",
        ] {
            assert!(page.contains(word), "no {word:?}");
        }
    }

    #[test]
    fn no_share_is_white_and_more_is_darker() {
        assert_eq!(heat(0.0), RGBColor(255, 255, 255));
        assert!(heat(0.5).0 > heat(0.9).0);
        assert_eq!(heat(2.0), heat(1.0));
    }
}
