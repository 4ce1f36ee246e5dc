//! Owns the stores that are buckets: S3 and what speaks like it, Google Cloud Storage, Azure.
//!
//! # Algorithm
//! The client is `object_store`, which makes no second attempt here: its answer to one would be
//! that the object is there, because of the first. 412 and 409 come as the same error; both say
//! nothing. Calls wait on the thread that calls; a long body is sent in parts (`upload`).
//!
//! What the tag of an object is differs: the ETag in S3 and Azure, the generation in GCS, whose
//! answers to writes have no ETag.
//!
//! # Threads and locks
//! The runtime of all buckets has one thread, which does requests while the callers' threads do
//! something else. It is never dropped: that would panic on a thread of another runtime, on which
//! the last handle of a database may be dropped.

use std::fmt;
use std::future::Future;
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::StreamExt as _;
use monolite_ltx::Timestamp;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, AttributeValue, Attributes, Error as ClientError, GetOptions, GetRange, GetResult,
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig, UpdateVersion,
};
use tokio::runtime::{Builder, Runtime};

use self::upload::Upload;
use super::{Fetched, Listed, Listing, Part, Store, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, LevelKeys};

mod redirect;
mod upload;

/// How long an answer is waited for, besides the time that its bytes take: so short that an
/// `Archived` write has time left, of 30 s by default, for the second attempt. What was not
/// answered may still be done.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a list may take, which is ten requests at most.
const LISTING: Duration = Duration::from_secs(60);

/// How many bytes in a second are expected of a slow line, in either direction.
const SLOW: usize = 512 << 10;

/// How long the client waits by itself: longer than it is waited for here.
const CLIENT_PATIENCE: &str = "1 hour";

/// How many objects a list has at most: ten requests of S3.
const LISTED: usize = 10_000;

/// Which service a bucket is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// S3 and what speaks like it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

/// A bucket as a store. Its calls must not be made on a thread of an async runtime.
pub struct BucketStore {
    client: Arc<dyn ObjectStore>,
    parts: Arc<dyn MultipartStore>,
    service: Service,
    runtime: &'static Runtime,
}

impl fmt::Debug for BucketStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BucketStore").field("client", &self.client).finish_non_exhaustive()
    }
}

impl BucketStore {
    /// Of a client of one's own, which must make no second attempts at conditional writes. `parts`
    /// is the same client; bodies above 8 MiB are uploaded through it.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) when the system gives no runtime.
    pub fn new(
        client: Arc<dyn ObjectStore>,
        parts: Arc<dyn MultipartStore>,
        service: Service,
    ) -> Result<BucketStore> {
        static RUNTIME: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("monolite-bucket").enable_all().build()
        });
        let runtime = RUNTIME.as_ref();
        let runtime =
            runtime.map_err(|error| Error::of_io("make a runtime", error.kind().into()))?;
        Ok(BucketStore { client, parts, service, runtime })
    }

    /// The bucket and the prefix that `url` names: `s3://bucket/prefix?endpoint=…&region=…`,
    /// `gs://bucket/prefix`, `az://container/prefix?account_name=…`. What it does not say comes
    /// from the usual variables of the environment; credentials do not belong into it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when it names nothing, something unknown, or a service that
    /// this was built without.
    pub fn open(url: &str) -> Result<(BucketStore, Layout)> {
        BucketStore::open_with(url, &[])
    }

    /// The same with `options` that go before the environment, and after what the address says
    /// ([`Archive::at_with`](crate::Archive::at_with)).
    ///
    /// # Errors
    /// Those of [`open`](BucketStore::open), and for a name of an option that there is not.
    pub fn open_with(url: &str, options: &[(String, String)]) -> Result<(BucketStore, Layout)> {
        let mut place = Place::parse(url)?;
        let options = options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        place.options.splice(0..0, options);
        place.must_be_reachable()?;
        let (service, levels) = match place.scheme {
            "s3" => (Service::S3, LevelKeys::Hexadecimal),
            "gs" => (Service::Gcs, LevelKeys::Decimal),
            "az" => (Service::Azure, LevelKeys::Decimal),
            other => return Err(Error::invalid(format!("{other:?} is no kind of bucket"))),
        };
        let layout = Layout::new(place.prefix, levels)?;
        let (client, parts) = client(service, &place)?;
        Ok((BucketStore::new(client, parts, service)?, layout))
    }

    /// Waits for an answer, for a bounded time.
    fn wait<T>(
        &self,
        key: &str,
        limit: Duration,
        answer: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let answer = self.runtime.block_on(async { tokio::time::timeout(limit, answer).await });
        match answer {
            Ok(answer) => answer.map_err(|error| of_client(key, &error)),
            Err(_) => Err(Error::new(ErrorKind::Lost, format!("{key:?}: no answer in time"))),
        }
    }

    fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Result<Tag> {
        let text = match self.service {
            Service::S3 | Service::Azure => e_tag,
            Service::Gcs => version,
        };
        let missing = || Error::new(ErrorKind::Unsupported, "the store gives objects no tags");
        text.map(Tag::new).ok_or_else(missing)
    }

    fn put(&self, key: &str, body: &[u8], options: PutOptions) -> Result<Tag> {
        let payload = body.to_vec().into();
        let limit = patience(body.len());
        let put = self.wait(key, limit, self.client.put_opts(&path(key)?, payload, options))?;
        self.tag(put.e_tag, put.version)
    }

    fn attributes(&self, time: Option<Timestamp>) -> Attributes {
        let name = match self.service {
            Service::S3 | Service::Gcs => "litestream-timestamp",
            Service::Azure => "litestreamtimestamp",
        };
        // Before the year 0 and after 9999 there is no such text, and Litestream no such time.
        let text = time.map(|time| time.to_string()).filter(|text| text.ends_with('Z'));
        let pair = text.map(|text| (Attribute::Metadata(name.into()), AttributeValue::from(text)));
        pair.into_iter().collect()
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        found(self.wait(key, PATIENCE, self.client.head(&path(key)?)))
    }

    /// Nothing of an object, but its length and its tag.
    fn nothing_of(&self, meta: ObjectMeta) -> Result<Fetched> {
        let (len, tag) = (meta.size, self.tag(meta.e_tag, meta.version)?);
        Ok(Fetched { bytes: Vec::new(), len, tag })
    }

    fn fetch(&self, key: &str, range: Option<GetRange>, limit: u64) -> Result<Option<Fetched>> {
        let path = path(key)?;
        let options = GetOptions { range, ..GetOptions::default() };
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let answer = self.wait(key, patience(most), async {
            let got = self.client.get_opts(&path, options).await?;
            let meta = got.meta.clone();
            if got.range.end - got.range.start > limit {
                return Ok((meta, None));
            }
            Ok((meta, Some(body(got).await?)))
        });
        let Some((meta, bytes)) = found(answer)? else { return Ok(None) };
        let len = meta.size;
        let bytes = bytes.ok_or_else(|| Error::corrupt(format!("{key:?} has {len} bytes")))?;
        let tag = self.tag(meta.e_tag, meta.version)?;
        Ok(Some(Fetched { bytes, len, tag }))
    }
}

impl Store for BucketStore {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        let attributes = self.attributes(time);
        self.put(key, body, PutOptions { mode: PutMode::Create, attributes, ..Default::default() })
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        let mut upload = Upload::new(self, key, about, time)?;
        write(&mut upload)?;
        upload.finish()
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        let text = Some(expected.as_str().to_owned());
        let version = match self.service {
            Service::S3 | Service::Azure => UpdateVersion { e_tag: text, version: None },
            Service::Gcs => UpdateVersion { e_tag: None, version: text },
        };
        self.put(key, body, PutMode::Update(version).into())
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        let range = match &part {
            Part::Whole(limit) => return self.fetch(key, None, *limit),
            Part::Range(range) => range.clone(),
            Part::End(bytes) if *bytes > 0 && self.service != Service::Azure => {
                if let Ok(fetched) = self.fetch(key, Some(GetRange::Suffix(*bytes)), *bytes) {
                    return Ok(fetched);
                }
                0..0
            }
            Part::End(_) => 0..0,
        };
        if !range.is_empty() {
            let most = range.end - range.start;
            let fetched = self.fetch(key, Some(GetRange::Bounded(range)), most);
            if fetched.is_ok() {
                return fetched;
            }
        }
        // A part that is empty, or behind the end, is an error of the service.
        let Some(meta) = self.head(key)? else { return Ok(None) };
        let Some(range) = part.of(meta.size).filter(|range| !range.is_empty()) else {
            return self.nothing_of(meta).map(Some);
        };
        let most = range.end - range.start;
        self.fetch(key, Some(GetRange::Bounded(range)), most)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        let folder = path(prefix)?;
        let after = after.map(path).transpose()?;
        let is_child = |meta: &ObjectMeta| {
            let below = meta.location.as_ref().strip_prefix(prefix);
            below.is_some_and(|name| name.starts_with('/') && !name[1..].contains('/'))
        };
        let listed = self.wait(prefix, LISTING, async {
            let mut metas = match &after {
                Some(after) => self.client.list_with_offset(Some(&folder), after),
                None => self.client.list(Some(&folder)),
            };
            let mut objects = Vec::new();
            while let Some(meta) = metas.next().await {
                let meta = meta?;
                if is_child(&meta) {
                    objects.push(Listed { key: meta.location.to_string(), len: meta.size });
                }
                if objects.len() > LISTED {
                    break;
                }
            }
            Ok(objects)
        });
        let mut objects = listed?;
        let is_cut = objects.len() > LISTED;
        let is_behind = |after: &Path| objects.iter().all(|it| it.key.as_str() > after.as_ref());
        let is_sorted = objects.is_sorted_by(|one, other| one.key < other.key);
        if (is_cut && !is_sorted) || !after.as_ref().is_none_or(is_behind) {
            let message = format!(
                "{prefix:?}: the store lists more than {LISTED} objects in no order, or again from \
                 the beginning, so a list of them has no end; merge files, or use another store"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        objects.truncate(LISTED);
        objects.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Listing { objects, is_cut })
    }

    fn delete(&self, key: &str) -> Result<()> {
        found(self.wait(key, PATIENCE, self.client.delete(&path(key)?))).map(drop)
    }
}

/// The bytes of an answer, as many as it says: a proxy may have cut it and said so, and more are
/// not taken into memory.
async fn body(got: GetResult) -> object_store::Result<Vec<u8>> {
    let must = got.range.end - got.range.start;
    let mut bytes = Vec::with_capacity(usize::try_from(must).unwrap_or_default());
    let mut pieces = got.into_stream();
    while bytes.len() as u64 <= must
        && let Some(piece) = pieces.next().await
    {
        bytes.extend_from_slice(&piece?);
    }
    if bytes.len() as u64 == must {
        return Ok(bytes);
    }
    let than = if (bytes.len() as u64) < must { "fewer" } else { "more" };
    let source = format!("{than} than the {must} bytes that the answer says it has").into();
    Err(ClientError::Generic { store: "bucket", source })
}

/// How long is waited for the answer to a request that has so many bytes, or whose answer has.
fn patience(bytes: usize) -> Duration {
    PATIENCE + Duration::from_secs((bytes / SLOW) as u64)
}

fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|error| Error::invalid(format!("{key:?} can be no key: {error}")))
}

/// That there is none is an answer.
fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn of_client(key: &str, error: &ClientError) -> Error {
    let kind = match error {
        ClientError::NotFound { .. } => ErrorKind::NotFound,
        ClientError::AlreadyExists { .. }
        | ClientError::Precondition { .. }
        | ClientError::NotModified { .. } => ErrorKind::Exists,
        ClientError::PermissionDenied { .. } | ClientError::Unauthenticated { .. } => {
            ErrorKind::Denied
        }
        ClientError::InvalidPath { .. } => ErrorKind::Invalid,
        ClientError::NotSupported { .. } | ClientError::NotImplemented { .. } => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::Lost,
    };
    Error::new(kind, format!("{key:?}: {error}"))
}

/// What an address says.
struct Place<'a> {
    scheme: &'a str,
    bucket: &'a str,
    prefix: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl Place<'_> {
    fn parse(url: &str) -> Result<Place<'_>> {
        let wrong = || Error::invalid(format!("{url:?} is no address as s3://bucket/prefix"));
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(wrong());
        }
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let options = pairs.map(|pair| pair.split_once('=').ok_or_else(wrong));
        let options = options.collect::<Result<_>>()?;
        Ok(Place { scheme, bucket, prefix: prefix.trim_end_matches('/'), options })
    }
}

impl Place<'_> {
    /// The client refuses addresses without encryption at each request, and does not say why.
    fn must_be_reachable(&self) -> Result<()> {
        let said = |names: [&str; 2]| {
            let pairs = self.options.iter().rev();
            pairs.clone().find(|(key, _)| names.contains(key)).map(|(_, value)| *value)
        };
        let plain = said(["endpoint", "aws_endpoint"]).filter(|it| it.starts_with("http://"));
        let is_allowed = said(["allow_http", "aws_allow_http"]).map(str::to_owned);
        let is_allowed = is_allowed.or_else(|| std::env::var("AWS_ALLOW_HTTP").ok());
        match plain.filter(|_| is_allowed.is_none()) {
            Some(endpoint) => Err(Error::invalid(format!(
                "the endpoint {endpoint:?} does not encrypt: use https, or say allow_http=true"
            ))),
            None => Ok(()),
        }
    }
}

/// The client of a service, with the options of an address.
macro_rules! client {
    ($builder:ty, $named:ident, $place:expr) => {{
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let mut builder = <$builder>::from_env().with_retry(retry).$named($place.bucket);
        builder = builder.with_http_connector(redirect::Direct::default());
        if let Ok(key) = "timeout".parse() {
            builder = builder.with_config(key, CLIENT_PATIENCE);
        }
        for (key, value) in &$place.options {
            let key = key.parse().map_err(|_| Error::invalid(format!("no option {key:?}")))?;
            builder = builder.with_config(key, *value);
        }
        let built = builder.build().map_err(|error| Error::invalid(error.to_string()))?;
        let built = Arc::new(built);
        Ok((Arc::clone(&built) as Arc<dyn ObjectStore>, built as Arc<dyn MultipartStore>))
    }};
}

type Client = (Arc<dyn ObjectStore>, Arc<dyn MultipartStore>);

fn client(service: Service, place: &Place<'_>) -> Result<Client> {
    match service {
        #[cfg(feature = "s3")]
        Service::S3 => client!(object_store::aws::AmazonS3Builder, with_bucket_name, place),
        #[cfg(feature = "gcs")]
        Service::Gcs => {
            client!(object_store::gcp::GoogleCloudStorageBuilder, with_bucket_name, place)
        }
        #[cfg(feature = "azure")]
        Service::Azure => {
            client!(object_store::azure::MicrosoftAzureBuilder, with_container_name, place)
        }
        #[allow(unreachable_patterns, reason = "with all features there is no other")]
        _ => {
            let feature = format!("{service:?}").to_lowercase();
            Err(Error::invalid(format!(
                "this was built without the feature {feature}; build with it"
            )))
        }
    }
}
