//! Any bytes as a request. The fuzz target `hrana` includes this file, too.

use monolite_server::hrana::{
    Batch, ClientMessage, CursorRequest, Encoding, PipelineRequest, Stmt, StreamRequest,
};

/// Reads `data` as each kind of request in each encoding, and holds each batch to its promise.
///
/// # Errors
/// If a condition could be read that asks for a later step, or a `close` that is not the last.
pub(crate) fn any_bytes(data: &[u8]) -> Result<(), String> {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        if let Ok(pipeline) = PipelineRequest::decode(data, encoding) {
            let earlier = pipeline.requests.split_last().map_or(&[][..], |(_, earlier)| earlier);
            if earlier.contains(&StreamRequest::Close) {
                return Err("a pipeline goes on behind its end".into());
            }
            for request in &pipeline.requests {
                if let StreamRequest::Batch(batch) = request {
                    evaluate(batch)?;
                }
            }
        }
        if let Ok(cursor) = CursorRequest::decode(data, encoding) {
            evaluate(&cursor.batch)?;
        }
        let _: Result<ClientMessage, _> = ClientMessage::decode(data, encoding);
    }
    let _: Result<Stmt, _> = Stmt::decode_v1(data);
    let _: Result<Batch, _> = Batch::decode_v1(data);
    Ok(())
}

/// A condition is the same whatever comes of its own step and those behind.
fn evaluate(batch: &Batch) -> Result<(), String> {
    for (index, step) in batch.steps.iter().enumerate() {
        let Some(condition) = &step.condition else { continue };
        let earlier = vec![true; index];
        let all = vec![true; batch.steps.len()];
        if condition.holds(&earlier, true) != condition.holds(&all, true) {
            return Err(format!("step {index} depends on the future"));
        }
    }
    Ok(())
}
