//! Runs the gateway's source under shuttle: tasks and threads in thousands of orders. No order may block, or lose or
//! duplicate an event. `tests/models/` contains the programs.

use acp_gateway_models::{follow, session};

/// Runs a model in many orders: by chance, and with few but well-placed changes of turn.
fn in_many_orders(model: fn(), orders: usize) {
    shuttle::check_random(model, orders);
    shuttle::check_pct(model, orders, 3);
}

#[test]
fn every_follower_gets_every_event_once_in_any_order_of_tasks() {
    in_many_orders(follow::every_event_once, 500);
}

#[test]
fn first_answer_to_a_request_wins_in_every_task_order() {
    in_many_orders(session::first_answer_wins, 1000);
}
