//! Simulated tool calls: no file is read or written, and no command runs.

use agent_client_protocol_schema::v1::{
    Diff, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdateFields, ToolKind,
};
use serde_json::json;

use super::super::options::Mode;
use super::super::permission::Permission;
use super::super::record::Grant;
use super::super::text::fenced;
use super::super::turn::{Step, Turn};

const FILE: &str = "src/greeting.rs";

const OLD: &str = "/// Says hello.\npub fn greet(name: &str) -> String {\n    format!(\"Hello {name}\")\n}\n";

const NEW: &str = "/// Says hello, also to someone whose name we do not know.\npub fn greet(name: &str) -> String {\n    \
let name = name.trim();\n    if name.is_empty() {\n        return \"Hello, stranger!\".to_owned();\n    }\n    \
format!(\"Hello, {name}!\")\n}\n";

const TEST_RUN: [&str; 6] = [
    "$ cargo test\n",
    "   Compiling greeting v0.1.0\n",
    "running 2 tests\n",
    "test greets_by_name ... ok\n",
    "test greets_a_stranger ... ok\n",
    "\ntest result: ok. 2 passed; 0 failed\n",
];

/// A search, then a read.
pub(super) async fn look_around(turn: &mut Turn) -> Step {
    let search = turn
        .call(call("Search for \"greet\"", ToolKind::Search).raw_input(json!({ "pattern": "greet" })))
        .await?;
    turn.pause(8).await?;
    turn.progress(&search, done(&format!("{FILE}:2: pub fn greet(name: &str) -> String {{"))).await?;
    let location = ToolCallLocation::new(turn.path(FILE)).line(1);
    let read = turn.call(call(&format!("Read {FILE}"), ToolKind::Read).locations(vec![location])).await?;
    turn.pause(8).await?;
    turn.progress(&read, done(&fenced("rust", OLD))).await
}

/// A test run with growing output. It changes nothing, so it needs no permission.
pub(super) async fn tests(turn: &mut Turn) -> Step {
    let tests = turn
        .call(call("Run the tests", ToolKind::Execute).raw_input(json!({ "command": "cargo test" })))
        .await?;
    let mut display = turn.display(&tests, "cargo test").await?;
    for line in TEST_RUN {
        turn.pause(4).await?;
        turn.print(&mut display, line).await?;
    }
    turn.printed(display).await
}

pub(super) async fn plan(turn: &mut Turn) -> Step {
    const STEPS: [&str; 4] =
        ["Find where the greeting is made", "Change it", "Run the tests", "Report the result"];
    turn.plan(&STEPS, 0).await?;
    look_around(turn).await?;
    turn.plan(&STEPS, 1).await?;
    let permission = change(turn).await?;
    turn.plan(&STEPS, 2).await?;
    tests(turn).await?;
    turn.plan(&STEPS, 3).await?;
    conclude(turn, permission).await?;
    turn.plan(&STEPS, STEPS.len()).await
}

pub(super) async fn edit(turn: &mut Turn) -> Step {
    let permission = change(turn).await?;
    conclude(turn, permission).await
}

/// A command that asks for permission before it runs.
pub(super) async fn terminal(turn: &mut Turn) -> Step {
    let command = json!({ "command": "cargo build" });
    let fields = ToolCallUpdateFields::new()
        .title("Run cargo build".to_owned())
        .kind(ToolKind::Execute)
        .raw_input(command.clone());
    let build = turn
        .call(call("Run cargo build", ToolKind::Execute).raw_input(command).status(ToolCallStatus::Pending))
        .await?;
    if turn.permission(&build, fields, Grant::Execute).await? == Permission::Denied {
        turn.progress(&build, failed("Not run.")).await?;
        return turn.say(&denied(turn.mode(), "the command did not run")).await;
    }
    turn.progress(&build, ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await?;
    let mut display = turn.display(&build, "cargo build").await?;
    for line in ["$ cargo build\n", "   Compiling greeting v0.1.0\n", "    Finished `dev` profile in 0.42s\n"]
    {
        turn.pause(10).await?;
        turn.print(&mut display, line).await?;
    }
    turn.printed(display).await?;
    turn.say("The build passed. (The output was written in advance: nothing ran on your machine.)").await
}

/// Asks in every mode, regardless of earlier answers, and does nothing else.
pub(super) async fn permission(turn: &mut Turn) -> Step {
    turn.say("Here is a question; the turn waits until you answer it.\n\n").await?;
    let fields = ToolCallUpdateFields::new()
        .title("Delete the folder \"imaginary\"".to_owned())
        .kind(ToolKind::Delete)
        .status(ToolCallStatus::Pending);
    let delete = turn
        .call(call("Delete the folder \"imaginary\"", ToolKind::Delete).status(ToolCallStatus::Pending))
        .await?;
    let (permission, always) = turn.ask(&delete, fields).await?;
    if permission == Permission::Granted {
        turn.progress(&delete, done("The folder was imaginary, so it is gone already.")).await?;
        turn.say(if always { "You allowed it, for always." } else { "You allowed it, this once." }).await
    } else {
        turn.progress(&delete, failed("Not deleted.")).await?;
        turn.say(if always { "You rejected it, for always." } else { "You rejected it, this once." }).await
    }
}

/// The edit: a diff, the permission request, and the result.
async fn change(turn: &mut Turn) -> Step<Permission> {
    let path = turn.path(FILE);
    let title = format!("Edit {FILE}");
    let diff = || vec![ToolCallContent::Diff(Diff::new(path.clone(), NEW).old_text(OLD.to_owned()))];
    let location = vec![ToolCallLocation::new(path.clone()).line(2)];
    let edit = turn
        .call(
            call(&title, ToolKind::Edit)
                .status(ToolCallStatus::Pending)
                .content(diff())
                .locations(location.clone()),
        )
        .await?;
    let fields = ToolCallUpdateFields::new()
        .title(title)
        .kind(ToolKind::Edit)
        .status(ToolCallStatus::Pending)
        .content(diff())
        .locations(location);
    let permission = turn.permission(&edit, fields, Grant::Edit).await?;
    if permission == Permission::Granted {
        turn.progress(&edit, ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await?;
        turn.pause(12).await?;
        turn.progress(&edit, ToolCallUpdateFields::new().status(ToolCallStatus::Completed)).await?;
    } else {
        turn.progress(&edit, ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?;
    }
    Ok(permission)
}

async fn conclude(turn: &mut Turn, permission: Permission) -> Step {
    if permission == Permission::Denied {
        return turn.say(&denied(turn.mode(), "the change was not applied")).await;
    }
    turn.say("`greet` copes with an empty name now. (The file exists only in this demo: nothing on your disk changed.)")
        .await
}

pub(super) fn denied(mode: Mode, what: &str) -> String {
    match mode {
        Mode::Plan => format!("This session is in the mode *Plan only*, so {what}."),
        Mode::Ask | Mode::Auto => format!("You said no, so {what}."),
    }
}

pub(super) fn call(title: &str, kind: ToolKind) -> ToolCall {
    // The turn sets the id of the call.
    ToolCall::new("", title).kind(kind).status(ToolCallStatus::InProgress)
}

pub(super) fn done(text: &str) -> ToolCallUpdateFields {
    ToolCallUpdateFields::new().status(ToolCallStatus::Completed).content(vec![ToolCallContent::from(text)])
}

pub(super) fn failed(text: &str) -> ToolCallUpdateFields {
    ToolCallUpdateFields::new().status(ToolCallStatus::Failed).content(vec![ToolCallContent::from(text)])
}
