//! Commands that send requests to the client.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde::Deserialize;

use super::script::Command;
use super::turn::{Step, Turn};
use super::wire::{Reply, string};

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    Some(match command.name {
        "permission" => permission(turn, command.text("wait", "no") == "yes"),
        "permission-first" => permission_first(turn),
        "permissions" => permissions(turn, command.number("n", 3)),
        "cancel-notify" => cancel_notify(turn, command.number("ms", 50)),
        "unserved" => unserved(turn),
        "ext" => {
            let session = string(&turn.session.id);
            turn.wire.line(format_args!(
                r#"{{"jsonrpc":"2.0","method":"_vendor/note","params":{{"sessionId":{session},"note":"hello"}}}}"#
            ));
            Ok(())
        }
        _ => return None,
    })
}

fn permission(turn: &Turn, wait: bool) -> Step {
    tool_call(turn, 1);
    let (_, answer) = ask(turn, 1);
    let chosen = outcome(&turn.reply(&answer, wait)?);
    tool_end(turn, 1, &chosen);
    turn.say(&format!("permission: {chosen}"));
    Ok(())
}

fn permission_first(turn: &Turn) -> Step {
    let (_, answer) = ask(turn, 1);
    let chosen = outcome(&turn.reply(&answer, false)?);
    if chosen.starts_with("allow") {
        tool_call(turn, 1);
        tool_end(turn, 1, &chosen);
    }
    turn.say(&format!("permission: {chosen}"));
    Ok(())
}

fn permissions(turn: &Turn, count: usize) -> Step {
    let answers: Vec<(String, Receiver<Reply>)> = (1..=count)
        .map(|number| {
            tool_call(turn, number);
            ask(turn, number)
        })
        .collect();
    for (number, (_, answer)) in (1..).zip(&answers) {
        let chosen = outcome(&turn.reply(answer, false)?);
        tool_end(turn, number, &chosen);
        turn.say(&format!("permission {number}: {chosen}\n"));
    }
    Ok(())
}

fn cancel_notify(turn: &Turn, millis: u64) -> Step {
    tool_call(turn, 1);
    let (id, answer) = ask(turn, 1);
    turn.pause(millis)?;
    turn.wire.line(format_args!(
        r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#
    ));
    let came = answer.recv_timeout(Duration::from_secs(2));
    tool_end(turn, 1, "withdrawn");
    turn.say(&format!(
        "cancel-notify: {}",
        came.map_or_else(|_| "none".to_owned(), |reply| outcome(&reply))
    ));
    Ok(())
}

fn unserved(turn: &Turn) -> Step {
    let session = string(&turn.session.id);
    let requests = [
        (
            "_vendor/thing",
            format!(r#"{{"sessionId":{session},"thing":1}}"#),
        ),
        (
            "fs/read_text_file",
            format!(r#"{{"sessionId":{session},"path":"/etc/passwd"}}"#),
        ),
        (
            "terminal/create",
            format!(r#"{{"sessionId":{session},"command":"id"}}"#),
        ),
    ];
    for (method, params) in requests {
        let (_, answer) = turn.wire.request(method, params);
        match turn.reply(&answer, false)? {
            Ok(_) => turn.say(&format!("{method}=ok ")),
            Err(code) => turn.say(&format!("{method}={code} ")),
        }
    }
    Ok(())
}

fn tool_call(turn: &Turn, number: usize) {
    turn.update(&format!(
        r#"{{"sessionUpdate":"tool_call","toolCallId":"call_{number}","title":"Change {number}","kind":"edit","status":"pending"}}"#
    ));
}

fn tool_end(turn: &Turn, number: usize, chosen: &str) {
    let status = if chosen.starts_with("allow") {
        "completed"
    } else {
        "failed"
    };
    turn.update(&format!(
        r#"{{"sessionUpdate":"tool_call_update","toolCallId":"call_{number}","status":"{status}"}}"#
    ));
}

fn ask(turn: &Turn, number: usize) -> (String, Receiver<Reply>) {
    let session = string(&turn.session.id);
    turn.wire.request(
        "session/request_permission",
        format_args!(
            r#"{{"sessionId":{session},"toolCall":{{"toolCallId":"call_{number}","title":"Change {number}","kind":"edit"}},"options":[{{"optionId":"allow","name":"Allow","kind":"allow_once"}},{{"optionId":"allow_always","name":"Always allow","kind":"allow_always"}},{{"optionId":"reject","name":"Reject","kind":"reject_once"}}]}}"#
        ),
    )
}

/// The selected option, `cancelled`, or `error CODE`.
fn outcome(reply: &Reply) -> String {
    #[derive(Deserialize)]
    struct Answer {
        outcome: Outcome,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome {
        outcome: String,
        option_id: Option<String>,
    }
    match reply {
        Err(code) => format!("error {code}"),
        Ok(result) => match serde_json::from_str::<Answer>(result) {
            Ok(answer) => answer.outcome.option_id.unwrap_or(answer.outcome.outcome),
            Err(_) => "malformed".to_owned(),
        },
    }
}
