//! Compresses the files of the chat page with brotli and gzip, and writes the type that embeds all three forms.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;

const PAGE: &str = "web/dist";

#[expect(
    clippy::disallowed_methods,
    reason = "cargo passes the folder in the environment"
)]
fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={PAGE}");
    println!("cargo::rerun-if-changed=build.rs");
    let output = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = output.join("page");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    add_folder(Path::new(PAGE), &target)?;
    // The macro takes the folder as a literal.
    let folder = target.to_str().expect("the macro reads UTF-8");
    let files =
        format!("#[derive(rust_embed::RustEmbed)]\n#[folder = {folder:?}]\nstruct Files;\n");
    fs::write(output.join("page.rs"), files)
}

fn add_folder(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let target = target.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            add_folder(&entry.path(), &target)?;
        } else {
            add_file(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn add_file(source: &Path, target: &Path) -> io::Result<()> {
    let content = fs::read(source)?;
    fs::write(target, &content)?;
    let mut gzip = GzEncoder::new(
        File::create(with_suffix(target, ".gz"))?,
        Compression::best(),
    );
    gzip.write_all(&content)?;
    gzip.finish()?;
    let mut brotli = File::create(with_suffix(target, ".br"))?;
    brotli::BrotliCompress(&mut &*content, &mut brotli, &BrotliEncoderParams::default())?;
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
