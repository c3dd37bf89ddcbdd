//! A `session/update` in its line, found without a tree: the one message of which there are many.
//!
//! It takes only what is spelled as agents spell it, and what it takes it sees as [`peek_update`](super::peek_update)
//! does. All else is read by parsing.

use std::ops::Range;

use super::{method, update};
use crate::jsonrpc::Scan;

/// Where the parts of an update stand in the bytes that it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateLine {
    /// The params.
    pub params: Range<usize>,
    /// The text of `params.sessionId`, which has no escapes.
    pub session_id: Range<usize>,
    /// `params.update`, an object.
    pub update: Range<usize>,
    /// The text of `params.update.sessionUpdate`, which has no escapes.
    pub kind: Range<usize>,
    /// `params._meta`, unless it is `null`.
    pub meta: Option<Range<usize>>,
    /// Its kind says nothing but what was said: see [`update::is_chunk`].
    pub chunk: bool,
}

impl UpdateLine {
    /// Finds the parts of the one line at `line` in `bytes`, which are UTF-8. None: it is another message, or has to be
    /// parsed.
    pub fn scan(bytes: &[u8], line: Range<usize>, max_depth: usize) -> Option<Self> {
        let base = line.start;
        let text = &bytes[line];
        let mut scan = Scan::new(text, max_depth);
        let (mut method, mut parts) = (false, None);
        scan.object(|scan, name| {
            match name {
                b"method" if !method => {
                    method = &text[scan.plain_text()?] == method::SESSION_UPDATE.as_bytes();
                    return method.then_some(());
                }
                b"params" if parts.is_none() => parts = Some(Self::params(scan, text, base)?),
                b"jsonrpc" => drop(scan.value()?),
                // An `id` makes it a request; a name that is written oddly may be one of ours.
                _ => return None,
            }
            Some(())
        })?;
        scan.end()?;
        parts.filter(|_| method)
    }

    fn params(scan: &mut Scan<'_>, text: &[u8], base: usize) -> Option<Self> {
        let (mut session_id, mut update, mut meta) = (None, None, None);
        let params = scan.object(|scan, name| {
            match name {
                b"sessionId" if session_id.is_none() => session_id = Some(scan.plain_text()?),
                b"update" if update.is_none() => update = Some(Self::update(scan, text)?),
                b"_meta" if meta.is_none() => meta = Some(scan.value()?),
                _ => return None,
            }
            Some(())
        })?;
        let ((update, kind), session_id) = (update?, session_id?);
        let at = |range: Range<usize>| range.start + base..range.end + base;
        let chunk = update::is_chunk(&text[kind.clone()]);
        let meta = meta.filter(|meta| &text[meta.clone()] != b"null").map(at);
        Some(Self {
            params: at(params),
            session_id: at(session_id),
            update: at(update),
            kind: at(kind),
            meta,
            chunk,
        })
    }

    /// The update and its kind.
    fn update(scan: &mut Scan<'_>, text: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
        let mut kind = None;
        let update = scan.object(|scan, name| {
            if name == b"sessionUpdate" {
                return kind.replace(scan.plain_text()?).is_none().then_some(());
            }
            // It may be that name with an escape in it.
            if name.contains(&b'\\') {
                return None;
            }
            scan.value().map(drop)
        })?;
        debug_assert_eq!(text[update.start], b'{');
        Some((update, kind?))
    }
}
