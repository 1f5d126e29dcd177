//! Takes a screenshot and a part of it, gives the bytes of a PNG.

use egui::{ColorImage, Rect};

/// The part of a screenshot that shows `rect`, in points; `None` when nothing of it is on it.
pub fn crop(image: &ColorImage, rect: Rect, pixels_per_point: f32) -> Option<ColorImage> {
    let [width, height] = image.size;
    let at = |points: f32, most: usize| ((points * pixels_per_point).round().max(0.0) as usize).min(most);
    let (left, right) = (at(rect.left(), width), at(rect.right(), width));
    let (top, bottom) = (at(rect.top(), height), at(rect.bottom(), height));
    if left >= right || top >= bottom {
        return None;
    }
    let rows = (top..bottom).flat_map(|y| image.pixels.get(y * width + left..y * width + right));
    Some(ColorImage::new([right - left, bottom - top], rows.flatten().copied().collect()))
}

pub fn encode(image: &ColorImage) -> Result<Vec<u8>, String> {
    let [width, height] = image.size;
    let size = |side: usize| u32::try_from(side).map_err(|_| "the picture is too large".to_owned());
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, size(width)?, size(height)?);
    encoder.set_color(::png::ColorType::Rgba);
    encoder.set_depth(::png::BitDepth::Eight);
    let pixels: Vec<u8> = image.pixels.iter().flat_map(|pixel| pixel.to_srgba_unmultiplied()).collect();
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels)?;
        writer.finish()
    });
    written.map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use egui::{Color32, pos2};

    use super::*;

    fn striped() -> ColorImage {
        let pixels = (0..8 * 4).map(|at| if at % 8 < 4 { Color32::RED } else { Color32::BLUE }).collect();
        ColorImage::new([8, 4], pixels)
    }

    #[test]
    fn a_part_is_cut_in_pixels() {
        let part = crop(&striped(), Rect::from_min_max(pos2(2.0, 0.0), pos2(4.0, 1.0)), 2.0).unwrap();
        assert_eq!((part.size, part.pixels[0]), ([4, 2], Color32::BLUE));
        let beyond = crop(&striped(), Rect::from_min_max(pos2(2.0, 0.0), pos2(400.0, 100.0)), 2.0).unwrap();
        assert_eq!(beyond.size, [4, 4]);
        assert!(crop(&striped(), Rect::from_min_max(pos2(50.0, 0.0), pos2(60.0, 1.0)), 2.0).is_none());
    }

    #[test]
    fn what_is_encoded_reads_back() {
        let bytes = encode(&striped()).unwrap();
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height, &pixels[..4]), (8, 4, &[255, 0, 0, 255][..]));
    }
}
