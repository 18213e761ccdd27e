// SPDX-License-Identifier: GPL-2.0-only
//! Pictures as PNG files.

use super::figures::Picture;
use super::svg;
use crate::shared::recording::Recording;
use crate::shared::replace::replace;
use anyhow::{Context, Result, bail};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::path::Path;
use std::sync::Arc;

/// Pixels per unit of the drawing: sharp on paper, too.
const SCALE: f32 = 2.0;

/// Writes a file per picture and recording; how many.
pub fn paint(recordings: &[Recording], pictures: &[Picture], directory: &Path) -> Result<usize> {
    let painter = Painter::new()?;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let style = style();
    let mut count = 0;
    for picture in pictures {
        for (index, recording) in recordings.iter().enumerate() {
            let name = if recordings.len() == 1 {
                format!("{}.png", picture.id)
            } else {
                let plain = |char: char| if char.is_alphanumeric() { char } else { '-' };
                let plain: String = recording.name.chars().map(plain).collect();
                format!("{}-{}-{plain}.png", picture.id, index + 1)
            };
            painter.paint(&picture.draw(index, &recording.name, Some(&style)), &directory.join(name))?;
            count += 1;
        }
    }
    Ok(count)
}

/// Makes PNG files of SVG pictures.
struct Painter {
    options: Options<'static>,
}

impl Painter {
    /// Finds the system's fonts.
    fn new() -> Result<Self> {
        let mut options = Options::default();
        let fonts = Arc::make_mut(&mut options.fontdb);
        fonts.load_system_fonts();
        let known =
            |name: &str| fonts.faces().any(|face| face.families.iter().any(|(family, _)| family == name));
        let preferred =
            ["DejaVu Sans", "Verdana", "Liberation Sans", "Noto Sans"].into_iter().find(|name| known(name));
        let any = || fonts.faces().find_map(|face| face.families.first().map(|(family, _)| family.clone()));
        let Some(family) = preferred.map(ToOwned::to_owned).or_else(any) else {
            bail!(
                "this system has no font to write with: install one (Debian's fonts-dejavu-core), or leave out \
                 --png; the pictures in the page need none"
            );
        };
        fonts.set_sans_serif_family(family);
        Ok(Self { options })
    }

    /// Paints a picture made with [`svg::style`].
    fn paint(&self, picture: &str, path: &Path) -> Result<()> {
        let tree = Tree::from_str(picture, &self.options).context("cannot read a picture of our own")?;
        let size = tree.size().to_int_size().scale_by(SCALE).context("a picture without size")?;
        let mut pixels = Pixmap::new(size.width(), size.height()).context("a picture without size")?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
        let data = pixels.encode_png().context("cannot encode a picture")?;
        replace(path, &data)
    }
}

/// The style of pictures on paper.
fn style() -> String {
    svg::style(false)
}
