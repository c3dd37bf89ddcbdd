//! Chunks as fast as the pipe accepts them, made from one template whose digits change in place.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::script::Command;
use super::turn::{End, Step, Turn};
use super::wire::string;

/// The number of digits at the start of each text.
const DIGITS: usize = 8;

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Step {
    let flood = command.name == "flood";
    let count: u64 = command.number("n", if flood { 100_000 } else { 10 });
    let rate: u64 = command.number("rate", 0);
    let batch = if rate > 0 || !flood {
        1
    } else {
        command.number("batch", 65536)
    };
    let mut line = Template::new(
        command.text("session", &turn.session.id),
        command.number("size", 64),
        command.number("marker", 0) != 0,
    );
    let mut buffer = Vec::with_capacity(batch + line.bytes.len());
    let start = now();
    for number in 0..count {
        if let Some(after) = (number * 1_000_000_000).checked_div(rate) {
            let due = start + after;
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(now())));
        }
        buffer.extend_from_slice(line.numbered(number));
        if buffer.len() + line.bytes.len() > batch {
            turn.wire.write(&buffer);
            buffer.clear();
            if turn.cancel.is_cancelled() {
                return Err(End::cancelled());
            }
        }
    }
    turn.wire.write(&buffer);
    Ok(())
}

/// The monotonic clock in nanoseconds, shared by all processes of the machine.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

struct Template {
    bytes: Vec<u8>,
    /// The position of the number in the text.
    number: usize,
    /// The position of the time in the marker `bench@<time, 16 hex digits>@<number, 8 hex digits>`.
    marker: Option<usize>,
}

impl Template {
    fn new(session: &str, size: usize, marker: bool) -> Self {
        let filler: String = " The quick brown fox jumps over the lazy dog."
            .chars()
            .cycle()
            .take(size.saturating_sub(DIGITS))
            .collect();
        let head = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{},"update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":""#,
            string(session)
        );
        let number = head.len();
        let mut text = format!(r#"{head}{}{filler}"}}}}"#, "0".repeat(DIGITS));
        let marker = marker.then(|| {
            text.push_str(r#","_meta":{"bench":"bench@"#);
            let at = text.len();
            text.push_str(r#"0000000000000000@00000000"}"#);
            at
        });
        text.push_str("}}\n");
        Self {
            bytes: text.into_bytes(),
            number,
            marker,
        }
    }

    fn numbered(&mut self, number: u64) -> &[u8] {
        digits::<10>(number, &mut self.bytes[self.number..self.number + DIGITS]);
        if let Some(at) = self.marker {
            digits::<16>(now(), &mut self.bytes[at..at + 16]);
            digits::<16>(number, &mut self.bytes[at + 17..at + 25]);
        }
        &self.bytes
    }
}

fn digits<const BASE: u64>(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::try_from(number % BASE).unwrap_or_default()];
        number /= BASE;
    }
}
