//! Commands whose lines arrive in unusual pieces, or without an end.

use std::time::Duration;

use super::script::Command;
use super::turn::{End, Step, Turn};
use super::wire::{chunk, string, update_line};

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    Some(match command.name {
        "drip" => {
            drip(turn, command.number("ms", 1));
            Ok(())
        }
        "wide" => {
            turn.say(&"漢".repeat(command.number("chars", 100_000)));
            turn.say("after");
            Ok(())
        }
        "endless" => {
            endless(turn, command.number("bytes", 100_000_000));
            turn.cancel.wait_for_ever();
            Err(End::NoAnswer)
        }
        "unfinished" => {
            unfinished(turn, command.text("at", "line"));
            std::process::exit(command.number("code", 0))
        }
        "twice" => {
            twice(
                turn,
                command.text("first", "end_turn"),
                command.text("second", "refusal"),
            );
            Err(End::NoAnswer)
        }
        _ => return None,
    })
}

/// Sends one chunk, one byte per write.
fn drip(turn: &Turn, millis: u64) {
    let line = format!(
        "{}\n",
        update_line(&turn.session.id, chunk("\"é漢😀 drop by drop\""))
    );
    for byte in line.bytes() {
        turn.wire.write(&[byte]);
        std::thread::sleep(Duration::from_millis(millis));
    }
}

/// Sends the beginning of a chunk with this many bytes, without holding them all in memory.
fn endless(turn: &Turn, bytes: usize) {
    const PIECE: usize = 1 << 20;
    let line = update_line(&turn.session.id, chunk("\"@\""));
    let (head, _) = line.split_once('@').expect("it was put there");
    let filler = vec![b'x'; PIECE];
    let mut pieces = vec![head.as_bytes()];
    pieces.extend(std::iter::repeat_n(&filler[..], bytes / PIECE));
    pieces.push(&filler[..bytes % PIECE]);
    turn.wire.write_pieces(&pieces);
}

/// Sends the answer to the prompt without its newline, or a chunk that ends within a character.
fn unfinished(turn: &Turn, at: &str) {
    let line = match at {
        "character" => {
            let line = update_line(&turn.session.id, chunk("\"half of 漢\""));
            let character = line.find('漢').expect("it was put there");
            line.as_bytes()[..=character].to_vec()
        }
        _ => format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"stopReason":"end_turn"}}}}"#,
            turn.id
        )
        .into_bytes(),
    };
    turn.wire.write(&line);
}

/// Sends two answers to the prompt in one write. Ends the turn first, so that the next prompt may follow at once.
fn twice(turn: &Turn, first: &str, second: &str) {
    turn.session.end();
    let answer = |reason: &str| {
        let id = &turn.id;
        let reason = string(reason);
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"stopReason\":{reason}}}}}\n")
    };
    turn.wire
        .write(format!("{}{}", answer(first), answer(second)).as_bytes());
}
