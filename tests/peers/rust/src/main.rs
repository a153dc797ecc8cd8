//! Rust's event processor with its blob store, as a member of a mixed fleet: `official-processor FOLDER NAME`.
//!
//! What it is told is in FOLDER/rust.json. Each event that it is given is a line `partition number` in FOLDER/read-NAME
//! before the checkpoint that covers it is written.

use std::{
    cell::RefCell,
    env,
    error::Error,
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    rc::Rc,
    sync::Arc,
};

use azure_core::{
    credentials::{AccessToken, TokenCredential, TokenRequestOptions},
    http::Url,
    time::{Duration, OffsetDateTime},
};
use azure_messaging_eventhubs::{
    error::ErrorKind,
    models::{ReceivedEventData, StartPositions},
    processor::PartitionClient,
    ConsumerClient, EventHubsError, EventProcessor, StartLocation, StartPosition,
};
use azure_messaging_eventhubs_checkpointstore_blob::BlobCheckpointStore;
use azure_storage_blob::BlobContainerClient;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::{
    signal::unix::{signal, SignalKind},
    task::{JoinSet, LocalSet},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The largest number of events between two checkpoints.
const BATCH: usize = 20;

/// The local server believes any token.
#[derive(Debug)]
struct AnyToken;

#[async_trait::async_trait]
impl TokenCredential for AnyToken {
    async fn get_token(&self, _: &[&str], _: Option<TokenRequestOptions<'_>>) -> azure_core::Result<AccessToken> {
        Ok(AccessToken::new(
            "token",
            OffsetDateTime::now_utc() + Duration::hours(24),
        ))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().collect();
    let (folder, name) = (Path::new(&arguments[1]), &arguments[2]);
    let told: Value = serde_json::from_str(&fs::read_to_string(folder.join("rust.json"))?)?;
    let read = folder.join(format!("read-{name}"));
    let read = Rc::new(RefCell::new(OpenOptions::new().append(true).create(true).open(read)?));
    let mut asked_to_end = signal(SignalKind::terminate())?;
    // A stream of events stays in its thread.
    LocalSet::new()
        .run_until(async {
            loop {
                tokio::select! {
                    _ = asked_to_end.recv() => return Ok(()),
                    broken = member(&told, name, &read) => eprintln!("begins anew: {broken:?}"),
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        })
        .await
}

/// A client and its processor, until they are broken: where a link was stolen, the client drops the sessions of all
/// others too, and at times keeps one that has ended for good. The name is the owner's, so that a new client goes on
/// with what the last one had.
async fn member(told: &Value, name: &str, read: &Rc<RefCell<File>>) -> Outcome<()> {
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_string();
    let seconds = |key: &str| told[key].as_f64().map(Duration::seconds_f64);
    let blobs = BlobContainerClient::new(Url::parse(&text("container"))?, None, None)?;
    let client = ConsumerClient::builder()
        .with_application_id(name.to_string())
        .with_custom_endpoint(text("endpoint"))
        .open(&text("namespace"), text("hub"), Arc::new(AnyToken))
        .await?;
    let earliest = StartPosition {
        location: StartLocation::Earliest,
        ..Default::default()
    };
    let mut settings = EventProcessor::builder().with_start_positions(StartPositions {
        default: earliest,
        ..Default::default()
    });
    if let Some(interval) = seconds("interval") {
        settings = settings.with_update_interval(interval);
    }
    if let Some(expiration) = seconds("expiration") {
        settings = settings.with_partition_expiration_duration(expiration);
    }
    let processor = settings.build(client, BlobCheckpointStore::new(blobs)).await?;

    let mut partitions = JoinSet::new();
    let running = processor.run();
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => return Ok(ended?),
            next = processor.next_partition_client() => {
                let (partition, read) = (next?, read.clone());
                partitions.spawn_local(async move {
                    work(&partition, &read).await.map_err(|error| error.to_string())?;
                    // Until it is closed, the processor takes the partition for one that is being read.
                    match Arc::try_unwrap(partition) {
                        Ok(partition) => partition.close().await.map_err(|error| error.to_string()),
                        Err(_) => Ok(()),
                    }
                });
            }
            Some(done) = partitions.join_next() => done??,
        }
    }
}

/// Until the partition is another's: write down what has come, then record it.
async fn work(partition: &PartitionClient, read: &RefCell<File>) -> Outcome<()> {
    let mut events = partition.stream_events();
    while let Some(event) = events.next().await {
        let mut next = Some(event);
        let mut batch = Vec::new();
        let mut stolen = false;
        while let Some(event) = next.take() {
            match event {
                Ok(event) => batch.push(event),
                Err(error) if is_stolen(&error) => stolen = true,
                Err(error) => return Err(error.into()),
            }
            if !stolen && batch.len() < BATCH {
                next = events.next().now_or_never().flatten();
            }
        }
        if let Some(last) = batch.last() {
            write(partition.get_partition_id(), &batch, &mut read.borrow_mut())?;
            partition.update_checkpoint(last).await?;
        }
        if stolen {
            break;
        }
    }
    Ok(())
}

/// Whether another has the partition: by its kind, or, where the client has tried to attach again, by its words.
fn is_stolen(error: &EventHubsError) -> bool {
    matches!(error.kind, ErrorKind::ConsumerDisconnected(_)) || error.to_string().contains("LinkStolen")
}

fn write(partition: &str, events: &[ReceivedEventData], read: &mut File) -> Outcome<()> {
    let mut lines = String::new();
    for event in events {
        let number = event.sequence_number().ok_or("an event without a sequence number")?;
        lines += &format!("{partition} {number}\n");
    }
    read.write_all(lines.as_bytes())?;
    Ok(read.sync_data()?)
}
