//! A screenshot's pixels.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use crate::error::{Error, Result};

use super::colour::{Rgb, luminance};
use super::seen::Rect;

/// A picture without transparency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    pixels: Vec<Rgb>,
}

impl Picture {
    /// A picture of one colour.
    #[cfg(test)]
    pub fn plain(width: usize, height: usize, colour: Rgb) -> Self {
        Self {
            width,
            height,
            pixels: vec![colour; width * height],
        }
    }

    /// Reads a PNG file.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::file("open", path))?;
        let mut decoder = png::Decoder::new(BufReader::new(file));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let broken = |what: String| {
            Error::wrong(
                format!("{} is no screenshot: {what}", path.display()),
                "open it in a viewer, and run the step again",
            )
        };
        let mut reader = decoder
            .read_info()
            .map_err(|error| broken(error.to_string()))?;
        let bytes = reader
            .output_buffer_size()
            .ok_or_else(|| broken("it is too large".into()))?;
        let mut data = vec![0; bytes];
        let info = reader
            .next_frame(&mut data)
            .map_err(|error| broken(error.to_string()))?;
        let channels = info.color_type.samples();
        let pixels = match channels {
            3 | 4 => data
                .chunks_exact(channels)
                .map(|pixel| [pixel[0], pixel[1], pixel[2]])
                .collect(),
            _ => return Err(broken(format!("it has {channels} channels"))),
        };
        Ok(Self {
            width: info.width as usize,
            height: info.height as usize,
            pixels,
        })
    }

    /// Writes a PNG file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = File::create(path).map_err(Error::file("write", path))?;
        let mut encoder =
            png::Encoder::new(BufWriter::new(file), self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        let data = self.pixels.as_flattened();
        let written = encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(data));
        written.map_err(|error| {
            Error::wrong(
                format!("cannot write {}: {error}", path.display()),
                "check that the folder is writable and the disk is not full, then run the step again",
            )
        })
    }

    /// The upper left corner of it, if it is that large.
    pub fn corner(&self, width: usize, height: usize) -> Option<Self> {
        if width > self.width || height > self.height {
            return None;
        }
        let mut pixels = Vec::with_capacity(width * height);
        for row in self.pixels.chunks_exact(self.width).take(height) {
            pixels.extend_from_slice(&row[..width]);
        }
        Some(Self {
            width,
            height,
            pixels,
        })
    }

    /// A pixel, if it is in the picture.
    pub fn at(&self, x: f64, y: f64) -> Option<Rgb> {
        let (x, y) = (x.max(0.0) as usize, y.max(0.0) as usize);
        (x < self.width && y < self.height).then(|| self.pixels[y * self.width + x])
    }

    /// The darkest and the lightest pixel of a part, if any of it is in the picture.
    pub fn extremes(&self, part: &Rect) -> Option<(Rgb, Rgb)> {
        let by_light = |a: &Rgb, b: &Rgb| luminance(*a).total_cmp(&luminance(*b));
        let darkest = self.part(part).min_by(by_light)?;
        let lightest = self.part(part).max_by(by_light)?;
        Some((darkest, lightest))
    }

    /// How many colours a part has; no more than `enough` are counted.
    pub fn colours(&self, part: &Rect, enough: usize) -> usize {
        let mut found: HashSet<Rgb> = HashSet::new();
        let mut last = None;
        for pixel in self.part(part) {
            if last.replace(pixel) != Some(pixel) {
                found.insert(pixel);
            }
            if found.len() >= enough {
                break;
            }
        }
        found.len()
    }

    /// All of it.
    pub fn all(&self) -> Rect {
        Rect {
            x: 0.0,
            y: 0.0,
            width: self.width as f64,
            height: self.height as f64,
        }
    }

    /// The pixels of a part, its borders rounded to whole pixels.
    pub fn part(&self, part: &Rect) -> impl Iterator<Item = Rgb> + '_ {
        let span = |from: f64, to: f64, most: usize| {
            let clip = |value: f64| (value.round().max(0.0) as usize).min(most);
            clip(from)..clip(to)
        };
        let columns = span(part.x, part.right(), self.width);
        span(part.y, part.bottom(), self.height)
            .flat_map(move |y| columns.clone().map(move |x| (x, y)))
            .map(|(x, y)| self.pixels[y * self.width + x])
    }

    /// Paints a part.
    #[cfg(test)]
    pub fn paint(&mut self, part: &Rect, colour: Rgb) {
        for y in part.y as usize..part.bottom() as usize {
            for x in part.x as usize..part.right() as usize {
                self.pixels[y * self.width + x] = colour;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Rect = Rect {
        x: 2.0,
        y: 1.0,
        width: 3.0,
        height: 2.0,
    };

    fn painted() -> Picture {
        let mut picture = Picture::plain(10, 6, [255; 3]);
        picture.paint(&PART, [9, 8, 7]);
        picture
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.png");
        painted().write(&file).unwrap();
        assert_eq!(Picture::read(&file).unwrap(), painted());
        assert!(std::fs::read(&file).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn what_is_no_png_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.png");
        std::fs::write(&file, "<html>").unwrap();
        let error = Picture::read(&file).unwrap_err().to_string();
        assert!(
            error.contains("a.png") && error.contains("Next:"),
            "{error}"
        );
    }

    #[test]
    fn parts_are_found_where_they_were_painted() {
        let picture = painted();
        assert_eq!(picture.extremes(&PART), Some(([9, 8, 7], [9, 8, 7])));
        assert_eq!(picture.colours(&picture.all(), 9), 2);
        assert_eq!(picture.at(4.9, 2.0), Some([9, 8, 7]));
        assert_eq!(picture.at(5.0, 2.0), Some([255; 3]));
        assert_eq!(picture.at(10.0, 0.0), None);
        let outside = Rect { x: 50.0, ..PART };
        assert_eq!(picture.extremes(&outside), None);
    }

    #[test]
    fn a_corner_is_no_larger_than_the_picture() {
        let corner = painted().corner(3, 2).unwrap();
        assert_eq!((corner.width, corner.height), (3, 2));
        assert_eq!(corner.at(2.0, 1.0), Some([9, 8, 7]));
        assert_eq!(painted().corner(11, 1), None);
    }
}
