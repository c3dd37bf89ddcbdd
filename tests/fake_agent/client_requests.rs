//! Requests of any method, as given in a prompt.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::script::Command;
use super::turn::{End, Step, Turn};
use super::wire::{Reply, string};

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    match command.name {
        "ask" => Some(ask(turn, command)),
        "complete" => {
            let id = string(command.text("id", "e1"));
            turn.wire.line(format_args!(
                r#"{{"jsonrpc":"2.0","method":"elicitation/complete","params":{{"elicitationId":{id}}}}}"#
            ));
            Some(Ok(()))
        }
        _ => None,
    }
}

fn ask(turn: &Turn, command: &Command<'_>) -> Step {
    let method = command.text("method", "_vendor/thing");
    if command.text("after", "now") == "cancel" {
        turn.cancel.wait_for_ever();
    }
    let params = command.text("params", r#"{"sessionId":$SESSION}"#);
    let params = params
        .replace("$SESSION", &string(&turn.session.id))
        .replace("$PROMPT", &turn.id);
    let asked: Vec<(String, Receiver<Reply>)> = (0..command.number("n", 1))
        .map(|_| match command.text("id", "") {
            "" => turn.wire.request(method, &params),
            id => (id.to_owned(), turn.wire.request_as(id, method, &params)),
        })
        .collect();
    let cancel_after = command.number("cancel-after", 0);
    if cancel_after > 0 {
        turn.pause(cancel_after)?;
        for (id, _) in &asked {
            turn.wire.line(format_args!(
                r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#
            ));
        }
    }
    if command.text("report", "yes") == "no" {
        return turn.pause(command.number("ms", 0));
    }
    for (_, answer) in &asked {
        let reply = if turn.cancel.is_cancelled() {
            answer
                .recv_timeout(Duration::from_secs(10))
                .map_err(|_| End::cancelled())?
        } else {
            turn.reply(answer, false)?
        };
        let text = match reply {
            Ok(result) => format!("{method}: {result}\n"),
            Err(code) => format!("{method}: error {code}\n"),
        };
        turn.say(&text);
    }
    if turn.cancel.is_cancelled() {
        Err(End::cancelled())
    } else {
        Ok(())
    }
}

/// A request during the set-up of a session, before its id is known. Waits so that the answer can arrive.
pub(crate) fn request_during_new(wire: &super::wire::Wire, call: &str) {
    let (_, answer) = wire.request(
        "elicitation/create",
        format_args!(
            r#"{{"requestId":{call},"mode":"form","message":"Which one?","requestedSchema":{{"type":"object","properties":{{}}}}}}"#
        ),
    );
    let _ = answer.recv_timeout(Duration::from_secs(10));
}
