//! What one reader saw: every event once and in order, and when each was written.

use memchr::memmem;

use super::Outcome;
use super::client::{Events, Frame};
use super::pipe;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Updates of the synthetic agent.
    pub(crate) updates: u32,
    /// Bytes of data.
    pub(crate) bytes: u64,
    /// From each marker to its read, in nanoseconds; empty without markers.
    pub(crate) latencies: Vec<u64>,
}

/// Reads until a prompt ended, and checks all on the way.
pub(crate) fn turn(mut events: Events, prompt: &str) -> Outcome<Seen> {
    let prompt = format!("\"promptId\":\"{prompt}\"");
    let (mut seen, mut frame, mut last) = (Seen::default(), Frame::default(), None);
    while events.next(&mut frame)? {
        if !frame.id.is_empty() && frame.event != "ready" {
            let seq = number(&frame.id)?;
            if last.is_some_and(|last| seq != last + 1) {
                return Err(format!("event {} came after number {last:?}", frame.id).into());
            }
            last = Some(seq);
        }
        seen.bytes += frame.data.len() as u64;
        match frame.event.as_str() {
            "session.update" => update(&frame.data, &mut seen)?,
            "prompt.completed" if memmem::find(&frame.data, prompt.as_bytes()).is_some() => return Ok(seen),
            "prompt.failed" | "problem" | "reset" | "shutdown" => {
                return Err(format!("{}: {}", frame.event, String::from_utf8_lossy(&frame.data)).into());
            }
            _ => {}
        }
    }
    Err("the stream ended before the turn".into())
}

/// The chunk's text begins with its number in the flood.
fn update(data: &[u8], seen: &mut Seen) -> Outcome {
    let Some(text) = pipe::text_number(data) else { return Ok(()) };
    if text != seen.updates {
        return Err(format!("update {text} came where {} was due", seen.updates).into());
    }
    seen.updates += 1;
    if let Some(sent) = pipe::marker(data) {
        seen.latencies.push(pipe::now().saturating_sub(sent));
    }
    Ok(())
}

/// The number in `<epoch>-<seq>`.
fn number(id: &str) -> Outcome<u64> {
    let seq = id.rsplit_once('-').and_then(|(_, seq)| seq.parse().ok());
    seq.ok_or_else(|| format!("not an event's id: {id:?}").into())
}
