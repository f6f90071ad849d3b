//! What every plot has.

use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

/// Of what is drawn to compare with, and of borders.
pub const GREY: RGBColor = RGBColor(140, 140, 140);

/// What drawing says when it fails.
pub type Undrawn<'a> = Box<dyn std::error::Error + 'a>;

/// A picture as SVG.
pub fn svg(
    size: (u32, u32),
    draw: impl for<'a> FnOnce(&DrawingArea<SVGBackend<'a>, Shift>) -> Result<(), Undrawn<'a>>,
) -> Result<String, String> {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, size).into_drawing_area())
        .map_err(|error| error.to_string())?;
    Ok(text)
}

/// The names of the series, in a box.
pub fn legend<'a, DB: DrawingBackend + 'a, CT: CoordTranslate>(
    chart: &mut ChartContext<'a, DB, CT>,
    at: SeriesLabelPosition,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    chart
        .configure_series_labels()
        .label_font(("sans-serif", 13))
        .position(at)
        .background_style(WHITE.mix(0.85))
        .border_style(GREY)
        .draw()
}
