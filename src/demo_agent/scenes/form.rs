//! Elicitations: a form, and a page to open.

use std::collections::BTreeMap;

use agent_client_protocol_schema::v1::{
    BooleanPropertySchema, CompleteElicitationNotification, CreateElicitationRequest,
    CreateElicitationResponse, ElicitationAction, ElicitationContentValue, ElicitationFormMode,
    ElicitationId, ElicitationMode, ElicitationSchema, ElicitationSessionScope, ElicitationUrlMode,
    EnumOption, Error, IntegerPropertySchema, MultiSelectPropertySchema, NumberPropertySchema, StringFormat,
    StringPropertySchema,
};

use super::super::text::{error_text, quoted};
use super::super::turn::{Step, Turn};

/// The maximum number of characters of a value in the answer.
const VALUE_MAX: usize = 80;

pub(super) async fn form(turn: &mut Turn, input: &str) -> Step {
    if !turn.offer.forms {
        return turn.say("Your client did not offer forms, so I cannot ask.").await;
    }
    turn.say("Here is a form; the turn waits until you send it.\n\n").await?;
    let schema = if input == "short" { short() } else { every_kind() };
    let scope = ElicitationSessionScope::new(turn.record().session_id.clone());
    let answer =
        ask(turn, ElicitationFormMode::new(scope, schema), "The demo would like to know some things.")
            .await?;
    let text = match answer {
        Ok(ElicitationAction::Accept(accepted)) => {
            let values = accepted.content.unwrap_or_default();
            format!("You answered:\n\n{}", listed(&values))
        }
        Ok(ElicitationAction::Decline) => "You declined to answer.".to_owned(),
        Ok(ElicitationAction::Cancel) => "You cancelled the form.".to_owned(),
        Ok(_) => "I do not know that answer.".to_owned(),
        Err(error) => format!("Your client did not ask: {}", error_text(&error)),
    };
    turn.say(&text).await
}

pub(super) async fn link(turn: &mut Turn) -> Step {
    if !turn.offer.urls {
        return turn.say("Your client did not offer to open pages, so I cannot ask.").await;
    }
    turn.say("Here is a page to open; the turn waits until you say whether you will.\n\n").await?;
    let id = ElicitationId::new(format!("page-{}", turn.record().number()));
    let scope = ElicitationSessionScope::new(turn.record().session_id.clone());
    let url = format!("https://example.com/demo?for={id}");
    let mode = ElicitationUrlMode::new(scope, id.clone(), url);
    match ask(turn, mode, "Open the demo's page, where you would sign in with a real agent.").await? {
        Ok(ElicitationAction::Accept(_)) => {
            turn.say("You opened it. I pretend that you complete the sign-in there.\n\n").await?;
            turn.pause(40).await?;
            turn.peer.notify("elicitation/complete", CompleteElicitationNotification::new(id)).await;
            turn.say("It is complete, and I notified your client.").await
        }
        Ok(ElicitationAction::Decline) => turn.say("You declined to open it.").await,
        Ok(_) => turn.say("You cancelled the question.").await,
        Err(error) => turn.say(&format!("Your client did not ask: {}", error_text(&error))).await,
    }
}

async fn ask(
    turn: &Turn,
    mode: impl Into<ElicitationMode>,
    message: &str,
) -> Step<Result<ElicitationAction, Error>> {
    let params = CreateElicitationRequest::new(mode, message);
    let answer = turn.request::<_, CreateElicitationResponse>("elicitation/create", params).await?;
    Ok(answer.map(|answer| answer.action))
}

fn short() -> ElicitationSchema {
    let name = StringPropertySchema::new().title("Your name".to_owned()).min_length(1).max_length(40);
    ElicitationSchema::new().property("name", name, true)
}

/// A form with each kind of field of ACP, and each kind of constraint.
fn every_kind() -> ElicitationSchema {
    let strings =
        |values: &[&str]| -> Vec<String> { values.iter().map(|value| (*value).to_owned()).collect() };
    let text = |title: &str| StringPropertySchema::new().title(title.to_owned());
    let sizes = vec![
        EnumOption::new("s", "Small").description("For one".to_owned()),
        EnumOption::new("m", "Medium").description("For two".to_owned()),
        EnumOption::new("l", "Large").description("For everybody".to_owned()),
    ];
    let days = vec![EnumOption::new("sat", "Saturday"), EnumOption::new("sun", "Sunday")];
    short()
        .title("A party".to_owned())
        .description("Only the name, the colour and the number of guests are needed.".to_owned())
        .property("email", text("E-mail").format(StringFormat::Email), false)
        .property("homepage", text("Homepage").format(StringFormat::Uri), false)
        .property("birthday", text("Birthday").format(StringFormat::Date), false)
        .property("begins", text("Begins at").format(StringFormat::DateTime), false)
        .property(
            "code",
            text("Code")
                .description("Three letters and three digits, as in ABC-123".to_owned())
                .pattern("^[A-Z]{3}-[0-9]{3}$".to_owned()),
            false,
        )
        .property(
            "colour",
            text("Colour").enum_values(strings(&["red", "green", "blue"])).default_value("green".to_owned()),
            true,
        )
        .property("size", text("Size").one_of(sizes), false)
        .property(
            "guests",
            IntegerPropertySchema::new().title("Guests".to_owned()).minimum(1).maximum(12).default_value(2),
            true,
        )
        .property(
            "budget",
            NumberPropertySchema::new().title("Budget".to_owned()).minimum(0.0).maximum(1000.0),
            false,
        )
        .property("music", BooleanPropertySchema::new().title("Music".to_owned()).default_value(true), false)
        .property(
            "toppings",
            MultiSelectPropertySchema::new(strings(&["cheese", "olives", "basil", "chili"]))
                .title("Toppings".to_owned())
                .min_items(1)
                .max_items(3),
            false,
        )
        .property("days", MultiSelectPropertySchema::titled(days).title("Days".to_owned()), false)
}

fn listed(values: &BTreeMap<String, ElicitationContentValue>) -> String {
    if values.is_empty() {
        return "nothing at all.".to_owned();
    }
    let line = |(name, value): (&String, &ElicitationContentValue)| {
        let value = match value {
            ElicitationContentValue::String(text) => quoted(text, VALUE_MAX),
            ElicitationContentValue::Integer(number) => number.to_string(),
            ElicitationContentValue::Number(number) => number.to_string(),
            ElicitationContentValue::Boolean(true) => "yes".to_owned(),
            ElicitationContentValue::Boolean(false) => "no".to_owned(),
            ElicitationContentValue::StringArray(texts) => quoted(&texts.join(", "), VALUE_MAX),
            _ => "something".to_owned(),
        };
        format!("- {}: {value}\n", quoted(name, VALUE_MAX))
    };
    values.iter().map(line).collect()
}
