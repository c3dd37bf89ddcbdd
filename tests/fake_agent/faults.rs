//! Commands that violate framing, JSON, JSON-RPC or ACP.

use super::script::Command;
use super::turn::{Step, Turn};
use super::wire::{Wire, chunk, string, update_line};

pub(crate) fn play(turn: &Turn, command: &Command<'_>, next: &str) -> Option<Step> {
    match command.name {
        "garbage" => garbage(turn, command.number("n", 5)),
        "array" => {
            let update = update_line(&turn.session.id, chunk("\"in a batch\""));
            turn.wire.line(format_args!("[{update}]"));
        }
        "bad-flood" => turn.wire.write(
            "this is not JSON\n"
                .repeat(command.number("n", 5000))
                .as_bytes(),
        ),
        "bad-utf8" => bad_utf8(turn),
        "split-utf8" => split_utf8(turn),
        "surrogate" => turn.say_raw(r#""a lone \ud83d surrogate""#),
        "long-line" => {
            let text = "x".repeat(command.number("bytes", 20_000_000));
            turn.update(&chunk(format_args!("\"{text}\"")));
            turn.say("after");
        }
        "deep" => deep(turn, command.number("depth", 200)),
        "dup-keys" => dup_keys(turn, command.text("session", "other")),
        "unknown-response" => unknown_response(turn),
        "spoof" => {
            turn.wire
                .update(command.text("session", "not-mine"), chunk("\"not mine\""));
            turn.say("mine");
        }
        "early" => early_updates(&turn.wire, next, command.number("n", 3)),
        _ => return None,
    }
    Some(Ok(()))
}

/// Sends updates for a session before the client knows it.
pub(crate) fn early_updates(wire: &Wire, session: &str, count: usize) {
    let kinds = [
        r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"memory show","description":"Early"}]}"#,
        r#"{"sessionUpdate":"usage_update","used":1,"size":1000}"#,
    ];
    for update in kinds.iter().cycle().take(count) {
        wire.update(session, update);
    }
}

fn garbage(turn: &Turn, count: usize) {
    for (number, line) in [
        "npm WARN deprecated",
        "{\"jsonrpc\":",
        "\"a string\"",
        "{}",
        "]",
    ]
    .iter()
    .cycle()
    .take(count)
    .enumerate()
    {
        turn.say(&format!("chunk {number} "));
        turn.wire.line(line);
    }
    turn.say("end");
}

fn bad_utf8(turn: &Turn) {
    turn.say("before ");
    let line = update_line(&turn.session.id, chunk("\"bad @ byte\""));
    let mut line: Vec<u8> = line
        .bytes()
        .map(|byte| if byte == b'@' { 0xff } else { byte })
        .collect();
    line.push(b'\n');
    turn.wire.write(&line);
    turn.say("after");
}

/// Splits every multi-byte character into separate writes, with pauses so that the reader sees the pieces.
fn split_utf8(turn: &Turn) {
    let line = update_line(&turn.session.id, chunk("\"ü 漢字 😀 end\""));
    let bytes = format!("{line}\n").into_bytes();
    let mut from = 0;
    for at in 1..bytes.len() {
        let inside = bytes[at] & 0xc0 == 0x80;
        if inside {
            turn.wire.write(&bytes[from..at]);
            std::thread::sleep(std::time::Duration::from_millis(5));
            from = at;
        }
    }
    turn.wire.write(&bytes[from..]);
}

fn deep(turn: &Turn, depth: usize) {
    let session = string(&turn.session.id);
    let open = "[".repeat(depth);
    let close = "]".repeat(depth);
    turn.wire.line(format_args!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{},"_meta":{{"deep":{open}{close}}}}}}}"#,
        chunk("\"deep\"")
    ));
    turn.say("after");
}

fn dup_keys(turn: &Turn, other: &str) {
    let mine = string(&turn.session.id);
    let other = string(other);
    let update = chunk("\"twice\"");
    for (first, second) in [(&mine, &other), (&other, &mine)] {
        turn.wire.line(format_args!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{first},"sessionId":{second},"update":{update}}}}}"#
        ));
    }
    turn.wire.line(format_args!(
        r#"{{"jsonrpc":"2.0","method":"session/update","method":"_vendor/other","params":{{"sessionId":{mine},"update":{update}}}}}"#
    ));
    turn.wire.line(format_args!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{mine},"update":{update},"update":{update}}}}}"#
    ));
    turn.say("after");
}

/// The command itself repeats the answer to the prompt after the end of the turn.
fn unknown_response(turn: &Turn) {
    for line in [
        r#"{"jsonrpc":"2.0","id":987654321,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody","result":{"stopReason":"end_turn"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"\"Method not found\": $/cancel_request"}}"#,
        r#"{"jsonrpc":"2.0","id":-1,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"result":null}"#,
    ] {
        turn.wire.line(line);
    }
    turn.say("after");
}
