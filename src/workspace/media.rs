//! The media type of a file by its name, and whether its content is text.

/// The media type by the extension of the name.
pub fn media_type(name: &str) -> Option<&'static str> {
    mime_guess::from_path(name).first_raw()
}

/// The bytes as text, if they are UTF-8 without NUL.
pub fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}
