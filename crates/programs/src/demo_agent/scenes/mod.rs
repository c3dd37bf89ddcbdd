//! The scenes of the demo. The prompt selects one: a command by its name, otherwise the tour or a scene that
//! matches the words. A command is a script in `scenes.json`, or a function if it needs decisions.

mod data;
mod functions;

use std::io::Write as _;
use std::pin::Pin;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};

use self::data::{Action, Command, SCENES};
use super::text::{Prompt, one_line, quoted};
use super::turn::{Permission, Step, Stop, Turn};

pub(super) fn available_commands() -> Vec<Value> {
    let command = |command: &Command| {
        let mut listed = json!({ "name": command.name, "description": command.description });
        if let Some(hint) = &command.hint {
            listed["input"] = json!({ "hint": hint });
        }
        listed
    };
    SCENES.commands.iter().map(command).collect()
}

/// Plays the turn with this number until its end. Returns the stop reason and the usage.
pub(super) async fn play(
    turn: &mut Turn,
    blocks: &[Value],
    number: u64,
    meta: &Value,
) -> Result<(&'static str, Value), Error> {
    let prompt = Prompt::new(blocks);
    let played = scene(turn, &prompt, number, meta).await;
    turn.end(played, &prompt.text).await
}

/// Plays the work that the agent does without a prompt.
pub(super) async fn play_background_work(turn: &mut Turn) -> Result<(&'static str, Value), Error> {
    let played = turn.say("I am working again, without a prompt.").await;
    turn.end(played, "").await
}

async fn scene(turn: &mut Turn, prompt: &Prompt, number: u64, meta: &Value) -> Step {
    let Some((name, input)) = prompt.command() else {
        return answer(&mut Player::new(turn, prompt), prompt, number).await;
    };
    let Some(command) = SCENES.command(name) else {
        turn.say(&format!(
            "I do not know {}. This is what I know:\n\n",
            quoted(&prompt.text, 40)
        ))
        .await?;
        return Player::new(turn, prompt).command("help").await;
    };
    let needs = command.needs.as_ref();
    if needs.is_some_and(|capability| !turn.client.offers(capability)) {
        return turn.say(&command.refusal).await;
    }
    match name {
        "withdraw" => functions::withdraw(turn, input).await,
        "form" => functions::form(turn, input).await,
        "link" => functions::link(turn).await,
        "read" => functions::read(turn, input).await,
        "write" => functions::write(turn, input).await,
        "run" => functions::run(turn, input).await,
        "timeout" => functions::timeout(turn, input).await,
        "title" => functions::title(turn, input).await,
        "part" => functions::part(turn, input).await,
        "correct" => functions::correct(turn).await,
        "wake" => functions::start_background_work(turn, input).await,
        "ext" => functions::extension(turn).await,
        "remember" => functions::remember(turn, input).await,
        "recall" => functions::recall(turn).await,
        "about" => functions::about(turn, meta).await,
        "long" => functions::long(turn, input).await,
        "slow" => functions::slow(turn, input).await,
        "pace" | "mode" => functions::set_option(turn, name, input).await,
        _ => {
            let script = command.cases.get(input).unwrap_or(&command.steps);
            Player::new(turn, prompt).play(script).await
        }
    }
}

/// Answers a plain message: first with the tour, later with a scene that matches the words.
async fn answer(player: &mut Player<'_>, prompt: &Prompt, number: u64) -> Step {
    const TOPICS: [(&[&str], &str); 3] = [
        (
            &[
                "edit", "change", "fix", "write", "add", "rename", "refactor", "diff",
            ],
            "diff",
        ),
        (
            &["run", "test", "tests", "build", "command", "terminal"],
            "terminal",
        ),
        (&["plan", "steps"], "plan"),
    ];
    if number == 1 {
        return player.command("tour").await;
    }
    let text = prompt.text.to_lowercase();
    let words: Vec<&str> = text
        .split(|letter: char| !letter.is_alphanumeric())
        .collect();
    let has_one_of = |topic: &[&str]| words.iter().any(|word| topic.contains(word));
    if let Some((_, command)) = TOPICS.iter().find(|(topic, _)| has_one_of(topic)) {
        player.part("acknowledge").await?;
        return player.command(command).await;
    }
    if has_one_of(&["help", "commands"]) {
        return player.command("help").await;
    }
    player.part("small talk").await
}

pub(super) fn command_table() -> String {
    let mut table = "| Command | Shows |\n| --- | --- |\n".to_owned();
    for Command {
        name,
        description,
        hint,
        ..
    } in &SCENES.commands
    {
        let hint = hint
            .as_ref()
            .map_or(String::new(), |hint| format!(" ({hint})"));
        table += &format!("| `/{name}` | {description}{hint} |\n");
    }
    table
}

/// The maximum number of characters of the user's message that the answer repeats.
const MAX_QUOTE_CHARS: usize = 120;
const CRASH_CODE: i32 = 42;

pub(super) struct Player<'a> {
    turn: &'a mut Turn,
    prompt: &'a Prompt,
    plan: &'static [String],
    /// The step of the plan that is in progress.
    plan_step: usize,
    call: String,
    permission: Permission,
    /// The number of this play, for ids.
    number: Option<u64>,
}

impl<'a> Player<'a> {
    pub(super) fn new(turn: &'a mut Turn, prompt: &'a Prompt) -> Self {
        Self {
            turn,
            prompt,
            plan: &[],
            plan_step: 0,
            call: String::new(),
            permission: Permission::default(),
            number: None,
        }
    }

    pub(super) async fn command(&mut self, name: &str) -> Step {
        let command = SCENES.command(name);
        self.play(command.map_or(&[], |command| command.steps.as_slice()))
            .await
    }

    pub(super) async fn part(&mut self, name: &str) -> Step {
        self.play(SCENES.parts.get(name).map_or(&[], Vec::as_slice))
            .await
    }

    async fn play(&mut self, script: &'static [Action]) -> Step {
        for action in script {
            self.act(action).await?;
        }
        Ok(())
    }

    /// Boxed, because parts of scripts recur.
    fn act<'b>(
        &'b mut self,
        action: &'static Action,
    ) -> Pin<Box<dyn Future<Output = Step> + Send + 'b>> {
        Box::pin(async move {
            match action {
                Action::Say(text) => {
                    let text = self.fill_text(text);
                    self.turn.say(&text).await
                }
                Action::Think(text) => {
                    let text = self.fill_text(text);
                    self.turn.think(&text).await
                }
                Action::Block(block) => self.turn.say_block(block.clone()).await,
                Action::Late(text) => {
                    let update = json!({
                        "sessionUpdate": "agent_message_chunk", "messageId": self.turn.new_message(),
                        "content": { "type": "text", "text": text },
                    });
                    self.turn.late_updates.push(update);
                    self.turn.new_message();
                    Ok(())
                }
                Action::Pause(beats) => self.turn.pause(*beats).await,
                Action::Update(update) => {
                    let update = self.fill(update);
                    self.turn.act(update).await
                }
                Action::Child(update) => {
                    self.turn.pause(1).await?;
                    let child = self.placeholder("child");
                    let update = self.fill(update);
                    self.turn.client.update(&child, update).await;
                    Ok(())
                }
                Action::Plan(steps) => {
                    self.plan = steps;
                    self.plan_step = 0;
                    self.show_plan().await
                }
                Action::Advance => {
                    self.plan_step += 1;
                    self.show_plan().await
                }
                Action::Part(name) => self.part(name).await,
                Action::UnlessShort(name) if self.length() != "short" => self.part(name).await,
                Action::IfLong(name) if self.length() == "long" => self.part(name).await,
                Action::Stop(reason) => Err(Stop::Reason(reason)),
                Action::Fail(reason) => Err(Error::internal_error().data(reason.as_str()).into()),
                Action::Crash => self.crash().await,
                Action::Call(call) => {
                    let call = self.fill(call);
                    self.call = self.turn.call(&call).await?;
                    Ok(())
                }
                Action::Ask(call) => {
                    let call = self.fill(call);
                    (self.call, self.permission) = self.turn.call_if_permitted(&call).await?;
                    Ok(())
                }
                Action::AskInAnyMode(call) => {
                    self.call = self.turn.call(call).await?;
                    self.permission = self.turn.ask(&self.call, call).await?;
                    Ok(())
                }
                Action::Allowed(script) if self.permission.granted => self.play(script).await,
                Action::Denied(script) if !self.permission.granted => self.play(script).await,
                Action::UnlessShort(_)
                | Action::IfLong(_)
                | Action::Allowed(_)
                | Action::Denied(_) => Ok(()),
                Action::Progress(members) => self.turn.progress(&self.call, members.clone()).await,
                Action::Done(text) => self.turn.end_call(&self.call, "completed", text).await,
                Action::Failed(text) => self.turn.end_call(&self.call, "failed", text).await,
                Action::Simulate {
                    command,
                    lines,
                    beats,
                } => self.turn.simulate(&self.call, command, lines, *beats).await,
            }
        })
    }

    async fn show_plan(&mut self) -> Step {
        let entry = |(at, step): (usize, &String)| {
            let status = match at.cmp(&self.plan_step) {
                std::cmp::Ordering::Less => "completed",
                std::cmp::Ordering::Equal => "in_progress",
                std::cmp::Ordering::Greater => "pending",
            };
            let priority = if at == 0 { "high" } else { "medium" };
            json!({ "content": step, "priority": priority, "status": status })
        };
        let entries: Vec<Value> = self.plan.iter().enumerate().map(entry).collect();
        self.turn
            .act(json!({ "sessionUpdate": "plan", "entries": entries }))
            .await
    }

    async fn crash(&self) -> Step {
        // The output must leave the process before its end.
        self.turn.wait(Duration::from_millis(100)).await?;
        let _ = writeln!(std::io::stderr(), "demo agent: ended by /crash");
        std::process::exit(CRASH_CODE);
    }

    fn length(&self) -> String {
        self.turn.options().selected("length").to_owned()
    }

    fn fill(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(member, value)| (member.clone(), self.fill(value)))
                .collect(),
            other => other.clone(),
        }
    }

    fn fill_text(&mut self, text: &str) -> String {
        let mut parts = text.split("${");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').unwrap_or((part, ""));
            filled.push_str(&self.placeholder(name));
            filled.push_str(rest);
        }
        filled
    }

    fn placeholder(&mut self, name: &str) -> String {
        match name {
            "acknowledgement" => self.acknowledgement(),
            "child" => {
                let number = self.number();
                format!("{}-child-{number}", self.turn.session().id)
            }
            "commands" => command_table(),
            "cwd" => self.turn.record().cwd(),
            "no" => self.turn.denial().to_owned(),
            "number" => self.number().to_string(),
            "thought" => self.thought(),
            "turns" => self.turn.record().turns.to_string(),
            "validity" if self.permission.always => "for always".to_owned(),
            "validity" => "this once".to_owned(),
            unknown => format!("${{{unknown}}}"),
        }
    }

    fn number(&mut self) -> u64 {
        *self
            .number
            .get_or_insert_with(|| self.turn.record().number())
    }

    fn thought(&self) -> String {
        if self.prompt.text.trim().is_empty() {
            return "The message has no text. I answer with what I can show.".to_owned();
        }
        format!(
            "The user writes “{}”. I have no model to think with, so these thoughts are part of the show: \
             an agent's reasoning streams to the client before its answer.",
            one_line(&self.prompt.text, MAX_QUOTE_CHARS)
        )
    }

    fn acknowledgement(&self) -> String {
        let attachments = self.prompt.acknowledgement();
        if self.prompt.text.trim().is_empty() || self.prompt.command().is_some() {
            return attachments;
        }
        format!(
            "You wrote {}.\n\n{attachments}",
            quoted(&self.prompt.text, MAX_QUOTE_CHARS)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_with_a_need_has_a_refusal() {
        for command in &SCENES.commands {
            assert_eq!(
                command.needs.is_some(),
                !command.refusal.is_empty(),
                "{}",
                command.name
            );
        }
        assert!(command_table().contains("| `/fail` | A turn that fails (error, tool, "));
    }
}
