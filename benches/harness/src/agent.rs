//! The synthetic agent: ACP on stdin and stdout with minimal cost.
//!
//! The text of a prompt defines the answer. `n=10000 size=64 rate=0 batch=65536` sends n updates of about
//! `size` characters at full speed, in writes of up to `batch` bytes. `batch=1` uses one write per update, as
//! most agents do. `rate` limits the updates per second.

use std::io::{self, BufRead as _, Write as _};
use std::num::NonZeroU64;

use rustix::thread::set_current_timer_slack;
use serde_json::{Value, json};

use crate::clock;
use crate::marker::{BLANK, LENGTH, Marker};

/// The parameters of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) n: u64,
    pub(crate) size: usize,
    pub(crate) rate: u64,
    pub(crate) batch: usize,
}

impl Prompt {
    /// n updates of 64 characters, at full speed.
    pub(crate) fn burst(n: u64) -> Self {
        Self {
            n,
            size: 64,
            rate: 0,
            batch: 65536,
        }
    }

    /// n updates, `rate` per second.
    pub(crate) fn paced(n: u64, rate: u64) -> Self {
        Self {
            rate,
            ..Self::burst(n)
        }
    }

    pub(crate) fn text(self) -> String {
        let Self {
            n,
            size,
            rate,
            batch,
        } = self;
        format!("n={n} size={size} rate={rate} batch={batch}")
    }

    /// Unknown values keep their defaults.
    fn parse(text: &str) -> Self {
        let mut prompt = Self::burst(100);
        for (name, value) in text
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
        {
            let Ok(value) = value.parse::<u64>() else {
                continue;
            };
            let size = usize::try_from(value).unwrap_or(usize::MAX);
            match name {
                "n" => prompt.n = value,
                "size" => prompt.size = size,
                "rate" => prompt.rate = value,
                "batch" => prompt.batch = size.max(1),
                _ => {}
            }
        }
        prompt
    }
}

/// Answers until stdin or stdout is closed.
pub fn play() -> io::Result<()> {
    // Otherwise the kernel wakes sleepers up to 50 us late. The measurement continues if this fails.
    set_current_timer_slack(NonZeroU64::new(1000)).ok();
    let mut out = io::stdout().lock();
    let mut sessions = 0_u64;
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        let id = &message["id"];
        let method = message["method"].as_str().unwrap_or_default();
        let result = match method {
            "initialize" => json!({
                "protocolVersion": 1,
                "agentCapabilities": { "loadSession": false, "sessionCapabilities": { "close": {} } },
                "authMethods": [],
                "agentInfo": { "name": "synthetic-agent", "version": "0.0.0" },
            }),
            "session/new" => {
                sessions += 1;
                json!({ "sessionId": format!("sess-{sessions}") })
            }
            "session/prompt" => {
                let params = &message["params"];
                let text = params["prompt"][0]["text"].as_str().unwrap_or_default();
                emit(&mut out, &params["sessionId"], Prompt::parse(text))?;
                json!({ "stopReason": "end_turn" })
            }
            _ => json!({}),
        };
        if !id.is_null() && !method.is_empty() {
            writeln!(
                out,
                "{}",
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            )?;
            out.flush()?;
        }
    }
    Ok(())
}

fn emit(out: &mut impl io::Write, session: &Value, prompt: Prompt) -> io::Result<()> {
    let filler: String = "The quick brown fox jumps over the lazy dog. "
        .chars()
        .cycle()
        .take(prompt.size)
        .collect();
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{filler}"}}}},"_meta":{{"bench":"{BLANK}"}}}}}}"#
    );
    let mark = line.len() - r#""}}}"#.len() - LENGTH;
    let mut line = (line + "\n").into_bytes();
    // Paced lines need one write each.
    let batch = if prompt.rate > 0 { 1 } else { prompt.batch };
    let mut buffer = Vec::with_capacity(batch + line.len());
    let start = clock::now();
    for number in 0..prompt.n {
        if let Some(after) = (number * 1_000_000_000).checked_div(prompt.rate) {
            clock::sleep_until(start + after);
        }
        Marker::stamp(&mut line[mark..mark + LENGTH], number);
        buffer.extend_from_slice(&line);
        if buffer.len() + line.len() > batch {
            out.write_all(&buffer)?;
            out.flush()?;
            buffer.clear();
        }
    }
    out.write_all(&buffer)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::{Scanner, Search};

    #[test]
    fn a_prompt_is_read_as_it_was_written() {
        let prompt = Prompt {
            n: 7,
            size: 30,
            rate: 50,
            batch: 1,
        };
        assert_eq!(Prompt::parse(&prompt.text()), prompt);
        assert_eq!(
            Prompt::parse("hello n=x size=1"),
            Prompt {
                size: 1,
                ..Prompt::burst(100)
            }
        );
    }

    #[test]
    fn each_line_is_an_update_with_its_number() {
        let mut out = Vec::new();
        emit(
            &mut out,
            &json!("sess-1"),
            Prompt {
                n: 300,
                size: 5,
                rate: 0,
                batch: 1000,
            },
        )
        .unwrap();
        let search = Search::new();
        let mut numbers = Vec::new();
        for line in out.split_inclusive(|&byte| byte == b'\n') {
            let update: Value = serde_json::from_slice(line).unwrap();
            assert_eq!(update["params"]["sessionId"], "sess-1");
            assert_eq!(update["params"]["update"]["content"]["text"], "The q");
            Scanner::new().feed(&search, line, |marker| numbers.push(marker.number));
        }
        assert_eq!(numbers, (0..300).collect::<Vec<u32>>());
    }
}
