//! Kinds of updates that no other scene sends.

use agent_client_protocol_schema::v1::{
    Annotations, AudioContent, BlobResourceContents, CompactionId, CompactionStatus, CompactionSummaryChunk,
    CompactionUpdate, ContentBlock, ContentChunk, EmbeddedResource, EmbeddedResourceResource, ImageContent,
    Notice, NoticeSeverity, PlanEntry, PlanEntryPriority, PlanEntryStatus, PlanId, PlanRemoved, PlanUpdate,
    PlanUpdateContent, ResourceLink, Role, SessionInfoUpdate, SessionUpdate, TextContent,
    TextResourceContents,
};

use super::super::text::one_line;
use super::super::turn::{Step, Turn};

/// An image of eight by eight pixels.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mOwbvqGFTEMLQkAT35swbMuMlMAAAAASUVORK5CYII=";
/// A silent wave file.
const SOUND: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";
/// The maximum number of characters of a title.
const TITLE_MAX: usize = 60;

pub(super) async fn plans(turn: &mut Turn) -> Step {
    if !turn.offer.plans {
        return turn.say("Your client did not offer plans with names; `/plan` shows one without.").await;
    }
    let entry = |what: &str, status| PlanEntry::new(what, PlanEntryPriority::Medium, status);
    let (steps, draft, notes) = (PlanId::new("steps"), PlanId::new("draft"), PlanId::new("notes"));
    let show = |content| SessionUpdate::PlanUpdate(PlanUpdate::new(content));
    let first = vec![
        entry("Write a draft", PlanEntryStatus::InProgress),
        entry("Throw the draft away", PlanEntryStatus::Pending),
    ];
    turn.act(show(PlanUpdateContent::items(steps.clone(), first))).await?;
    turn.pause(8).await?;
    let uri = format!("file://{}", turn.path("PLAN.md").display());
    turn.act(show(PlanUpdateContent::file(draft.clone(), uri))).await?;
    turn.act(show(PlanUpdateContent::markdown(notes, "A plan may be *a text* too."))).await?;
    turn.pause(8).await?;
    turn.act(SessionUpdate::PlanRemoved(PlanRemoved::new(draft))).await?;
    let last = vec![
        entry("Write a draft", PlanEntryStatus::Completed),
        entry("Throw the draft away", PlanEntryStatus::Completed),
    ];
    turn.act(show(PlanUpdateContent::items(steps, last))).await?;
    turn.say("There are two plans now: the third, a file, was removed.").await
}

pub(super) async fn notice(turn: &mut Turn, input: &str) -> Step {
    if !turn.offer.notices {
        return turn.say("Your client did not offer notices, so I sent none.").await;
    }
    let (severity, title) = match input {
        "warning" => (NoticeSeverity::Warning, "The demo warns you"),
        "error" => (NoticeSeverity::Error, "The demo reports an error"),
        _ => (NoticeSeverity::Info, "The demo reports something"),
    };
    let notice = Notice::new(severity, title).description(
        "It is shown beside the conversation, and it disappears when the session is loaded again.".to_owned(),
    );
    turn.act(SessionUpdate::Notice(notice)).await?;
    turn.say("I sent a notice.").await
}

/// Simulates a compaction of the session. The history does not change.
pub(super) async fn compact(turn: &mut Turn, input: &str) -> Step {
    if !turn.offer.compaction {
        return turn.say("Your client did not offer to show compactions.").await;
    }
    let id = CompactionId::new(format!("compaction_{}", turn.record().number()));
    let state = |status| CompactionUpdate::new(id.clone(), status);
    turn.act(SessionUpdate::CompactionUpdate(state(CompactionStatus::InProgress))).await?;
    turn.pause(8).await?;
    if input == "fail" {
        let failed =
            state(CompactionStatus::Failed).error("There is no model that could summarize it.".to_owned());
        turn.act(SessionUpdate::CompactionUpdate(failed)).await?;
        return turn.say("The compaction failed, as you asked.").await;
    }
    let turns = turn.record().turns;
    let first = format!("So far there were {turns} turns. ");
    for piece in [first.as_str(), "The user tried the demo, ", "and the demo did what the user asked."] {
        turn.pause(2).await?;
        let chunk = CompactionSummaryChunk::new(id.clone(), piece.into());
        turn.act(SessionUpdate::CompactionSummaryChunk(chunk)).await?;
    }
    turn.act(SessionUpdate::CompactionUpdate(state(CompactionStatus::Completed))).await?;
    turn.say("I pretended to summarize the session, but forgot nothing.").await
}

/// An answer with every kind of content block.
pub(super) async fn content(turn: &mut Turn) -> Step {
    let link = ResourceLink::new("ACP", "https://agentclientprotocol.com")
        .title("The protocol's pages".to_owned())
        .description("Where ACP is explained".to_owned())
        .mime_type("text/html".to_owned());
    let text = TextResourceContents::new("fn main() {}\n", "file:///demo/main.rs")
        .mime_type("text/x-rust".to_owned());
    let blob = BlobResourceContents::new("AAECAw==", "file:///demo/four.bin")
        .mime_type("application/octet-stream".to_owned());
    let for_you = Annotations::new().audience(vec![Role::User]).priority(1.0);
    let blocks = [
        ContentBlock::Text(
            TextContent::new("A text, an image, a sound, a link and two resources:\n\n").annotations(for_you),
        ),
        ContentBlock::Image(ImageContent::new(IMAGE, "image/png")),
        ContentBlock::Audio(AudioContent::new(SOUND, "audio/wav")),
        ContentBlock::ResourceLink(link),
        ContentBlock::Resource(EmbeddedResource::new(EmbeddedResourceResource::TextResourceContents(text))),
        ContentBlock::Resource(EmbeddedResource::new(EmbeddedResourceResource::BlobResourceContents(blob))),
    ];
    for block in blocks {
        turn.pause(4).await?;
        turn.show(block).await?;
    }
    Ok(())
}

pub(super) async fn title(turn: &mut Turn, input: &str) -> Step {
    let title = one_line(input, TITLE_MAX);
    if title.is_empty() {
        return turn.say("Which title? `/title Holiday plans`.").await;
    }
    turn.change(|record| record.title = Some(title.clone()))?;
    turn.act(SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title(title))).await?;
    turn.say("I named the session so. A name that you gave it yourself counts for more.").await
}

/// Sends an update after the answer to the prompt. It still belongs to the turn.
pub(super) async fn late(turn: &mut Turn) -> Step {
    let message = turn.new_message();
    let word = ContentChunk::new("And this arrived after the end of the turn.".into()).message_id(message);
    turn.afterword.updates.push(SessionUpdate::AgentMessageChunk(word));
    turn.new_message();
    turn.say("This turn ends now. ").await
}
