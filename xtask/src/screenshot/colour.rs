//! Colours as a browser names and paints them, and how well they stand out.

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// Reads `rgb(1, 2, 3)` and `rgba(1, 2, 3, 0.5)`, the forms in which a browser names a computed colour.
pub fn parse(text: &str) -> Option<Rgb> {
    let numbers = text
        .strip_prefix("rgba(")
        .or_else(|| text.strip_prefix("rgb("))?
        .strip_suffix(')')?;
    let mut parts = numbers.split(',').map(|part| part.trim().parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// The largest difference of a channel.
pub fn apart(a: Rgb, b: Rgb) -> u8 {
    a.iter()
        .zip(b)
        .map(|(a, b)| a.abs_diff(b))
        .max()
        .unwrap_or(0)
}

/// Contrast as the Web Content Accessibility Guidelines reckon it: from 1, none, to 21, black on white.
pub fn contrast(a: Rgb, b: Rgb) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Relative luminance, from 0 to 1.
pub fn luminance([red, green, blue]: Rgb) -> f64 {
    let linear = |channel: u8| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 {
            share / 12.92
        } else {
            ((share + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

/// Whether a colour is plainly green.
pub fn is_green([red, green, blue]: Rgb) -> bool {
    green > red.saturating_add(MORE) && green > blue.saturating_add(MORE)
}

/// Whether a colour is plainly red.
pub fn is_red([red, green, blue]: Rgb) -> bool {
    red > green.saturating_add(MORE) && red > blue.saturating_add(MORE)
}

/// By this much a channel must lead to give a colour its name.
const MORE: u8 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browsers_colours_are_read() {
        assert_eq!(parse("rgb(10, 107, 45)"), Some([10, 107, 45]));
        assert_eq!(parse("rgba(1, 2, 3, 0.5)"), Some([1, 2, 3]));
        for other in ["", "red", "rgb(1, 2)", "rgb(1, 2, 300)", "rgb(1 2 3)"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn contrast_is_that_of_the_guidelines() {
        assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
        assert!((contrast([0x77; 3], [255; 3]) - 4.48).abs() < 0.01);
        assert_eq!(
            contrast([9, 8, 7], [200, 1, 1]),
            contrast([200, 1, 1], [9, 8, 7])
        );
    }

    #[test]
    fn green_and_red_are_told_from_grey() {
        assert!(is_green([10, 107, 45]) && !is_green([0, 0, 0]) && !is_green([176, 0, 32]));
        assert!(is_red([176, 0, 32]) && !is_red([28, 28, 28]) && !is_red([10, 107, 45]));
    }
}
