//! Owns tenancy's grant key: signs deploy grants (ES256) and judges a JWT as OpenBao's jwt mount does.
//!
//! Takes claims, gives compact JWTs and the public key in the two forms that OpenBao takes; the private key stays in memory.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde_json::{Map, Value, json};

use crate::clock;

/// What precedes the point in a P-256 SubjectPublicKeyInfo.
const SPKI_P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The claims of one grant, each of which a test may spoil.
#[derive(Clone, Debug)]
pub struct GrantSpec {
    claims: Map<String, Value>,
}

impl GrantSpec {
    /// A good deploy grant for one hour, without its `jti`, which the signer adds.
    pub fn new(env_id: &str) -> Self {
        let now = clock::now().as_secs();
        let claims = json!({
            "iss": "monky-tenancy",
            "aud": "openbao-see-env",
            "sub": format!("agent:{env_id}"),
            "env_id": env_id,
            "kind": "deploy-grant",
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
        });
        Self {
            claims: claims.as_object().cloned().unwrap_or_default(),
        }
    }

    /// Sets any claim.
    #[must_use]
    pub fn claim(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.claims.insert(name.to_owned(), value.into());
        self
    }

    /// Leaves a claim out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.claims.remove(name);
        self
    }

    /// Sets `exp` relative to now; a negative value makes an expired grant, issued an hour before. OpenBao allows 60 s of skew.
    #[must_use]
    pub fn expires_in(self, seconds: i64) -> Self {
        let exp = clock::now().as_secs().saturating_add_signed(seconds);
        let issued = exp.saturating_sub(3600);
        self.claim("exp", exp)
            .claim("iat", issued)
            .claim("nbf", issued)
    }
}

/// The signer.
pub struct Grants {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl Grants {
    /// A new key pair.
    pub fn new() -> io::Result<Self> {
        let random = SystemRandom::new();
        let broken = |_| io::Error::other("no P-256 key");
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(broken)?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
                .map_err(|_| io::Error::other("no P-256 key"))?;
        Ok(Self { key, random })
    }

    /// For OpenBao's `jwt_validation_pubkeys`.
    pub fn public_key_pem(&self) -> String {
        let mut der = SPKI_P256.to_vec();
        der.extend(self.key.public_key().as_ref());
        let text = STANDARD.encode(der);
        let (first, second) = text.split_at(64);
        format!("-----BEGIN PUBLIC KEY-----\n{first}\n{second}\n-----END PUBLIC KEY-----\n")
    }

    /// What tenancy publishes at `/.well-known/agent-jwks.json`.
    pub fn jwks(&self) -> Value {
        // The point is uncompressed: 0x04, then x and y of 32 bytes.
        let point = self.key.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(32);
        json!({"keys": [{
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "control-plane",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }

    /// A good deploy grant.
    pub fn deploy_grant(&self, env_id: &str) -> String {
        self.sign(&GrantSpec::new(env_id))
    }

    /// A grant as specified.
    pub fn sign(&self, spec: &GrantSpec) -> String {
        let mut claims = spec.claims.clone();
        claims
            .entry("jti")
            .or_insert_with(|| self.random_id().into());
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": "control-plane"});
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(Value::Object(claims).to_string())
        );
        match self.key.sign(&self.random, signed.as_bytes()) {
            Ok(signature) => format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)),
            // Only a system without randomness gets here; such a JWT is refused by everybody.
            Err(_) => signed,
        }
    }

    /// The claims of a JWT of ours, signature checked, dates not; else OpenBao's words.
    pub fn verify(&self, jwt: &str) -> Result<Map<String, Value>, String> {
        let reason = |words: &str| Err(format!("error verifying token signature: {words}"));
        let (Some((signed, signature)), 2) = (jwt.rsplit_once('.'), jwt.matches('.').count())
        else {
            return reason("go-jose/go-jose: compact JWS format must have three parts");
        };
        let (head, payload) = signed.split_once('.').unwrap_or((signed, ""));
        let (Ok(head), Ok(payload), Ok(signature)) = (
            URL_SAFE_NO_PAD.decode(head),
            URL_SAFE_NO_PAD.decode(payload),
            URL_SAFE_NO_PAD.decode(signature),
        ) else {
            return reason("illegal base64 data at input byte 0");
        };
        let alg = serde_json::from_slice::<Value>(&head).unwrap_or_default();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        if alg.get("alg") != Some(&json!("ES256"))
            || key.verify(signed.as_bytes(), &signature).is_err()
        {
            return reason("no known key successfully validated the token signature");
        }
        serde_json::from_slice(&payload)
            .map_err(|error| format!("error unmarshalling claims: {error}"))
    }

    /// The `jti` inside a JWT, unverified.
    pub fn jti_of(jwt: &str) -> Option<String> {
        let payload = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?;
        let claims: Value = serde_json::from_slice(&payload).ok()?;
        Some(claims.get("jti")?.as_str()?.to_owned())
    }

    fn random_id(&self) -> String {
        let mut bytes = [0; 16];
        let _ = self.random.fill(&mut bytes);
        hex(&bytes)
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_verifies_under_its_own_key_only() {
        let (ours, theirs) = (Grants::new().unwrap(), Grants::new().unwrap());
        let jwt = ours.deploy_grant("env-qa-02");
        let claims = ours.verify(&jwt).unwrap();
        assert_eq!(claims["sub"], "agent:env-qa-02");
        assert_eq!(claims["jti"].as_str(), Grants::jti_of(&jwt).as_deref());
        assert!(theirs.verify(&jwt).unwrap_err().contains("no known key"));
        assert!(ours.verify("a.b").unwrap_err().contains("three parts"));
        assert_ne!(jwt, ours.deploy_grant("env-qa-02"));
    }

    #[test]
    fn the_public_key_is_a_91_byte_spki() {
        let pem = Grants::new().unwrap().public_key_pem();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        assert_eq!(STANDARD.decode(body).unwrap().len(), 91);
    }
}
