//! The player of the scripts in `scenes.json`. The prompt selects one: a command by its name, otherwise the tour or a scene
//! that matches the words. A command without a script is a function in [`scenes`].

use std::collections::BTreeMap;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scenes;
use super::text::{Prompt, error_text, fenced, number, one_line, quoted};
use super::turn::{Permission, Step, Stop, Turn};

/// The maximum number of characters of the user's message that the answer repeats.
const MAX_QUOTE_CHARS: usize = 120;
/// The maximum number of characters of the name or the value of a field of a form.
const VALUE_MAX: usize = 80;
const CRASH_CODE: i32 = 42;

static SCENES: LazyLock<Scenes> = LazyLock::new(|| {
    serde_json::from_str(include_str!("scenes.json")).expect("the file is valid: a test reads it")
});

#[derive(Debug, Deserialize)]
struct Scenes {
    commands: Vec<Command>,
    parts: BTreeMap<String, Vec<Action>>,
    /// The words of plain messages, and the part that answers them.
    topics: Vec<(Vec<String>, String)>,
    paragraphs: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Command {
    name: String,
    description: String,
    hint: Option<String>,
    /// The capability of the client that the command needs, and the answer without it.
    needs: Option<String>,
    #[serde(default)]
    refusal: String,
    /// The script. Without one, a function has the command's name.
    #[serde(default)]
    steps: Vec<Action>,
    /// Other scripts, by the input of the command.
    #[serde(default)]
    cases: BTreeMap<String, Vec<Action>>,
}

/// One step of a script. Texts may contain the placeholders of the player of scripts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Say(String),
    Think(String),
    Block(Value),
    /// Asks the client, and plays the script for the answer: by its member `action`, or for an error.
    Request {
        method: String,
        params: Value,
        #[serde(default)]
        accept: Vec<Action>,
        #[serde(default)]
        decline: Vec<Action>,
        other: Vec<Action>,
        error: Vec<Action>,
    },
    Notify {
        method: String,
        params: Value,
    },
    /// A message after the end of the turn.
    Late(String),
    /// A number of beats.
    Pause(u32),
    Update(Value),
    /// An update of the subagent's session.
    Child(Value),
    Plan(Vec<String>),
    Advance,
    /// Announces a tool call. The following steps are about the last one.
    Call(Value),
    Ask(Value),
    AskInAnyMode(Value),
    Allowed(Vec<Action>),
    Denied(Vec<Action>),
    Progress(Value),
    Done(String),
    Failed(String),
    Simulate {
        command: String,
        lines: Vec<String>,
        beats: u32,
    },
    Part(String),
    /// A part, unless the length of answers is `short`.
    UnlessShort(String),
    IfLong(String),
    Stop(String),
    Fail(String),
    Crash,
}

impl Scenes {
    fn command(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    fn script(&self, name: &str) -> &[Action] {
        match (self.parts.get(name), self.command(name)) {
            (Some(part), _) => part,
            (None, Some(command)) => &command.steps,
            (None, None) => &[],
        }
    }

    fn answer(&self, text: &str, number: u64) -> &str {
        if number == 1 {
            return "tour";
        }
        let text = text.to_lowercase();
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        let words: Vec<&str> = words.collect();
        let has_one_of = |topic: &[String]| topic.iter().any(|word| words.contains(&&**word));
        let topic = self.topics.iter().find(|(topic, _)| has_one_of(topic));
        topic.map_or("small talk", |(_, part)| part)
    }
}

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

async fn scene(turn: &mut Turn, prompt: &Prompt, number: u64, meta: &Value) -> Step {
    let Some((name, input)) = prompt.command() else {
        let part = SCENES.answer(&prompt.text, number);
        return Player::new(turn, prompt).part(part).await;
    };
    let Some(command) = SCENES.command(name) else {
        turn.say(&format!(
            "I do not know {}. This is what I know:\n\n",
            quoted(&prompt.text, 40)
        ))
        .await?;
        return Player::new(turn, prompt).part("help").await;
    };
    let needs = command.needs.as_ref();
    if needs.is_some_and(|capability| !turn.client.offers(capability)) {
        return turn.say(&command.refusal).await;
    }
    let last_words = match name {
        "withdraw" => scenes::withdraw(turn, input).await?,
        "read" => scenes::read(turn, input).await?,
        "write" => scenes::write(turn, input).await?,
        "run" => scenes::run(turn, input).await?,
        "timeout" => scenes::timeout(turn, input).await?,
        "title" => scenes::title(turn, input).await?,
        "part" => scenes::part(turn, input).await?,
        "correct" => scenes::correct(turn).await?,
        "wake" => scenes::start_background_work(turn, input),
        "remember" => scenes::remember(input),
        "recall" => scenes::recall(turn),
        "about" => scenes::about(turn, meta),
        "slow" => scenes::slow(turn, input).await?,
        "long" => return long(turn, input).await,
        "pace" | "mode" => {
            let values = command.hint.as_deref().unwrap_or_default();
            scenes::set_option(turn, name, input, values).await?
        }
        _ => {
            let script = command.cases.get(input).unwrap_or(&command.steps);
            return Player::new(turn, prompt).play(script).await;
        }
    };
    turn.say(&last_words).await
}

async fn long(turn: &mut Turn, input: &str) -> Step {
    let count = number(input, 20, 200);
    for (at, text) in (1..=count).zip(SCENES.paragraphs.iter().cycle()) {
        turn.say(&format!("**{at} of {count}.** {text}\n\n"))
            .await?;
    }
    Ok(())
}

fn command_table() -> String {
    let mut table = "| Command | Shows |\n| --- | --- |\n".to_owned();
    for command in &SCENES.commands {
        table += &format!("| `/{}` | {}", command.name, command.description);
        if let Some(hint) = &command.hint {
            table += &format!(" ({hint})");
        }
        table += " |\n";
    }
    table
}

struct Player<'a> {
    turn: &'a mut Turn,
    prompt: &'a Prompt,
    plan: &'static [String],
    /// The step of the plan that is in progress.
    plan_step: usize,
    call: String,
    permission: Permission,
    /// The number of this play, for ids.
    number: Option<u64>,
    /// The answer of the client to the last request.
    answer: Result<Value, Error>,
}

impl<'a> Player<'a> {
    fn new(turn: &'a mut Turn, prompt: &'a Prompt) -> Self {
        Self {
            turn,
            prompt,
            plan: &[],
            plan_step: 0,
            call: String::new(),
            permission: Permission::default(),
            number: None,
            answer: Ok(Value::Null),
        }
    }

    async fn part(&mut self, name: &str) -> Step {
        self.play(SCENES.script(name)).await
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
                Action::Request {
                    method,
                    params,
                    accept,
                    decline,
                    other,
                    error,
                } => {
                    let params = self.fill(params);
                    self.answer = self.turn.request(method, params).await?;
                    let script = match &self.answer {
                        Ok(answer) if answer["action"] == "accept" => accept,
                        Ok(answer) if answer["action"] == "decline" => decline,
                        Ok(_) => other,
                        Err(_) => error,
                    };
                    self.play(script).await
                }
                Action::Notify { method, params } => {
                    let params = self.fill(params);
                    self.turn.client.notify(method, params).await;
                    Ok(())
                }
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
            "answer" => match &self.answer {
                Ok(answer) => fenced("json", &format!("{answer:#}")),
                Err(error) => error_text(error),
            },
            "answered values" => {
                let values = self.answer.as_ref().map(|answer| &answer["content"]);
                listed(values.unwrap_or(&Value::Null))
            }
            "child" => {
                let number = self.number();
                format!("{}-child-{number}", self.turn.session().id)
            }
            "commands" => command_table(),
            "cwd" => self.turn.record().cwd(),
            "no" => self.turn.denial().to_owned(),
            "number" => self.number().to_string(),
            "session" => self.turn.session().id.clone(),
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

fn listed(values: &Value) -> String {
    let line = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => quoted(text, VALUE_MAX),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Array(items) => {
                let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                quoted(&texts.join(", "), VALUE_MAX)
            }
            other => other.to_string(),
        };
        format!("- {}: {value}\n", quoted(name, VALUE_MAX))
    };
    match values.as_object() {
        Some(values) if !values.is_empty() => values.iter().map(line).collect(),
        _ => "nothing at all.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_with_a_need_has_a_refusal_and_every_topic_a_script() {
        for command in &SCENES.commands {
            assert_eq!(
                command.needs.is_some(),
                !command.refusal.is_empty(),
                "{}",
                command.name
            );
        }
        for (_, part) in &SCENES.topics {
            assert!(!SCENES.script(part).is_empty(), "{part}");
        }
        assert!(command_table().contains("| `/fail` | A turn that fails (error, tool, "));
    }
}
