//! The callback of a task, and webhooks for the ends of tasks.

use serde_json::json;

use super::run;
use crate::support::Setup;
use crate::webhooks::receiver::Receiver;

#[tokio::test]
async fn end_of_a_task_is_delivered_to_its_callback_and_to_webhooks() {
    let mut receiver = Receiver::new();
    let certificate = receiver.certificate.display();
    let table = format!("[webhooks]\nallowed_hosts = [\"localhost\"]\nca_file = \"{certificate}\"");
    let settings = "testing.webhooks_to_loopback = true\ntesting.webhook_retry_unit = \"1ms\"";
    let gateway = Setup::fake(&[]).settings(settings).table(&table).start();
    receiver.start(&gateway, 0).await;
    let webhook = json!({ "url": receiver.url("/hook"), "events": ["task.ended"] });
    gateway.post("/v1/webhooks", &webhook).await;
    let body = json!({ "agent": "fake", "description": "echo done", "callbackUrl": receiver.url("/task") });
    let task = run(&gateway, &body).await;

    let mut in_delivery = task.clone();
    in_delivery
        .as_object_mut()
        .expect("an object")
        .remove("children");
    let mut paths = Vec::new();
    for _ in 0..2 {
        let request = receiver.next().await;
        let message = &request["verified"];
        assert_eq!(
            (&message["type"], &message["data"]),
            (&json!("task.ended"), &in_delivery),
            "{request}"
        );
        paths.push(request["path"].as_str().expect("a path").to_owned());
    }
    paths.sort();
    assert_eq!(paths, ["/hook", "/task"]);
    let deliveries = gateway.get("/v1/webhooks/deliveries").await;
    let of_task = deliveries["deliveries"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["webhookId"].is_null());
    assert_eq!(
        of_task.expect("the callback")["sessionId"],
        task["sessionId"],
        "{deliveries}"
    );

    let other = json!({ "agent": "fake", "description": "echo x", "callbackUrl": "https://elsewhere.example/" });
    let (status, problem) = gateway.post("/v1/tasks", &other).await;
    assert_eq!(
        (status.as_u16(), &problem["errors"][0]["pointer"]),
        (422, &json!("/callbackUrl")),
        "{problem}"
    );
}
