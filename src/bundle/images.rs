//! Whether the images of a compose file are named as exactly as the bundle's own policy wants. The names are
//! interpolated first, with the values that the template gives without any secret; a name that needs a secret is put
//! off, and the same function judges it later with all values. Messages show the name as the compose file has it, never
//! what came out of it.

use super::findings::show;
use super::meta::ImagesPolicy;
use super::template::reference::{Dialect, evaluate, parse};
use crate::code::Code;
use crate::error::Finding;
use serde_json::Value;
use std::cell::Cell;
use zeroize::Zeroizing;

/// What is known of a variable when images are judged.
#[derive(Clone, Copy)]
pub enum Known<'a> {
    /// Nothing provides it.
    Unset,
    /// Its value.
    Value(&'a str),
    /// It has a value that needs a secret, and that is not known yet.
    Secret,
}

/// The verdict on all images.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// Services whose image is not named exactly enough.
    pub findings: Vec<Finding>,
    /// Services whose image's name needs a secret.
    pub deferred: Vec<String>,
}

/// The services of Compose's model, in the order of their names.
pub(super) fn services(model: &Value) -> impl Iterator<Item = (&String, &Value)> {
    model
        .get("services")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

/// The image of a service, as the compose file has it.
pub(super) fn image_of(service: &Value) -> Option<&str> {
    service
        .get("image")
        .and_then(Value::as_str)
        .filter(|image| !image.is_empty())
}

/// Judges the images of Compose's model under `policy`.
pub fn judge_images<'a>(
    model: &Value,
    policy: ImagesPolicy,
    known: &dyn Fn(&str) -> Known<'a>,
) -> Images {
    let mut images = Images::default();
    if policy == ImagesPolicy::Any {
        return images;
    }
    for (service, definition) in services(model) {
        let Some(written) = image_of(definition) else {
            continue;
        };
        match interpolate(written, known) {
            Image::Named(name) => {
                if let Some(why) = flaw(&name, policy) {
                    let service = show(service.as_bytes());
                    let written = show(written.as_bytes());
                    images.findings.push(Finding::new(
                        Code::ImageNotPinned,
                        format!("the image {written} of service {service} {why}"),
                    ));
                }
            }
            Image::NeedsSecret => images.deferred.push(service.clone()),
            Image::Incomplete => {}
        }
    }
    images
}

enum Image {
    Named(Zeroizing<String>),
    NeedsSecret,
    /// A variable is missing; that is found where references are judged.
    Incomplete,
}

fn interpolate<'a>(written: &str, known: &dyn Fn(&str) -> Known<'a>) -> Image {
    let Ok(parts) = parse(written, Dialect::ComposeFile) else {
        return Image::Incomplete;
    };
    let needs_secret = Cell::new(false);
    let lookup = |name: &str| match known(name) {
        Known::Value(value) => Some(value),
        Known::Secret => {
            needs_secret.set(true);
            Some("x")
        }
        Known::Unset => None,
    };
    let name = evaluate(&parts, &lookup);
    match name {
        _ if needs_secret.get() => Image::NeedsSecret,
        Ok(name) => Image::Named(name),
        Err(_) => Image::Incomplete,
    }
}

/// What the name lacks.
fn flaw(name: &str, policy: ImagesPolicy) -> Option<&'static str> {
    let (tagged, digest) = match name.split_once('@') {
        Some((tagged, digest)) => (tagged, Some(digest)),
        None => (name, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let last = tagged.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    match policy {
        ImagesPolicy::Any => None,
        ImagesPolicy::Digest => {
            let has = digest.is_some_and(|digest| digest.starts_with("sha256:"));
            (!has).then_some("has no @sha256: digest, which images_policy digest asks for")
        }
        ImagesPolicy::Tag if digest.is_some() => None,
        ImagesPolicy::Tag => match tag {
            None | Some("") => Some("has no tag, which images_policy tag asks for"),
            Some("latest") => Some("has the tag latest, which images_policy tag forbids"),
            Some(_) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(image: &str, policy: ImagesPolicy) -> Result<bool, String> {
        let known = |name: &str| match name {
            "TAG" => Known::Value("1.2"),
            "LATEST" => Known::Value("latest"),
            "EMPTY" => Known::Value(""),
            "SECRET" => Known::Secret,
            _ => Known::Unset,
        };
        let model = json!({"services": {"api": {"image": image}}});
        let images = judge_images(&model, policy, &known);
        match images.findings.first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(images.deferred.is_empty()),
        }
    }

    #[test]
    fn a_tag_policy_wants_a_tag_that_stays() {
        for good in [
            "nginx:1",
            "localhost:5000/a/b:1",
            "nginx@sha256:00",
            "nginx:latest@sha256:00",
            "nginx:$TAG",
            "nginx:${TAG}",
            "nginx:${NONE:-3}",
            "nginx:${EMPTY:-3}",
            "nginx:${TAG:+4}",
            "nginx:x$$y",
        ] {
            assert_eq!(verdict(good, ImagesPolicy::Tag), Ok(true), "{good}");
        }
        for (bad, why) in [
            ("nginx", "has no tag"),
            ("localhost:5000/nginx", "has no tag"),
            ("nginx:", "has no tag"),
            ("nginx:$EMPTY", "has no tag"),
            ("nginx:${EMPTY-3}", "has no tag"),
            ("nginx:latest", "has the tag latest"),
            ("nginx:${LATEST}", "has the tag latest"),
            ("nginx:${NONE:-latest}", "has the tag latest"),
            ("nginx:${NONE:-${LATEST}}", "has the tag latest"),
        ] {
            let error = verdict(bad, ImagesPolicy::Tag).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_digest_policy_wants_a_digest() {
        assert_eq!(verdict("a/b:1@sha256:00", ImagesPolicy::Digest), Ok(true));
        assert_eq!(
            verdict("a/b:$TAG", ImagesPolicy::Digest).unwrap_err(),
            "IMAGE_NOT_PINNED: the image \"a/b:$TAG\" of service \"api\" has no @sha256: digest, which images_policy digest asks for"
        );
        assert!(verdict("a@sha512:00", ImagesPolicy::Digest).is_err());
        assert_eq!(verdict("a", ImagesPolicy::Any), Ok(true));
    }

    #[test]
    fn a_name_that_needs_a_secret_is_put_off_only_if_it_really_does() {
        for (image, decided) in [
            ("nginx:$SECRET", false),
            ("nginx:${SECRET:-1}", false),
            ("nginx:${NONE:-$SECRET}", false),
            ("nginx:${TAG:-$SECRET}", true),
        ] {
            assert_eq!(verdict(image, ImagesPolicy::Tag), Ok(decided), "{image}");
        }
    }

    #[test]
    fn what_other_checks_refuse_is_not_told_twice() {
        for image in ["nginx:$NONE", "nginx:${NONE:?say}", "nginx:${", ""] {
            assert_eq!(verdict(image, ImagesPolicy::Tag), Ok(true), "{image}");
        }
        assert_eq!(
            judge_images(&json!({}), ImagesPolicy::Tag, &|_| Known::Unset),
            Images::default()
        );
    }
}
