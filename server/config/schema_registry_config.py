"""The part of the broker's configuration that is about the registry of schemas (`schemas/`).

Source: Confluent, SchemaRegistryClientConfig.java (names).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.formats.config_property import LIST, PASSWORD, STRING, ConfigError, prop

URL = "schema.registry.url"
USER_INFO = "schema.registry.basic.auth.user.info"
PREFIX = "schema.registry."
_NAMED = " Specific to Kompakt; the name is that of Confluent's clients."


@dataclass(frozen=True, kw_only=True)
class SchemaRegistryConfig:
    """Where the schemas of values are, and how the broker logs in there."""

    __slots__ = ()

    schema_registry_url: tuple[str, ...] = prop(
        URL,
        LIST,
        default=(),
        dynamic=False,
        doc="The URLs of a schema registry that speaks Confluent's API, such as http://registry:8081, or"
        " http://registry:8080/apis/ccompat/v7 of Apicurio. If a node cannot be reached, the next one is"
        " asked. The HTTP API then decodes values in Avro, Protobuf and JSON that name their schema."
        " Empty: values stay as they are." + _NAMED,
    )
    schema_registry_basic_auth_user_info: str = prop(
        USER_INFO,
        PASSWORD,
        default="",
        dynamic=False,
        doc="With which user:password the broker logs in at the schema registry. Empty: it does not."
        + _NAMED,
    )
    schema_registry_ssl_truststore_location: str = prop(
        "schema.registry.ssl.truststore.location",
        STRING,
        default="",
        dynamic=False,
        doc="The file with the certificates that sign the schema registry's: PEM, PKCS12 or JKS. Empty:"
        " those that the system trusts." + _NAMED,
    )
    schema_registry_ssl_truststore_password: str = prop(
        "schema.registry.ssl.truststore.password",
        PASSWORD,
        default="",
        dynamic=False,
        doc="The password of this file, if it is PKCS12 or JKS." + _NAMED,
    )
    schema_registry_ssl_keystore_location: str = prop(
        "schema.registry.ssl.keystore.location",
        STRING,
        default="",
        dynamic=False,
        doc="The file with the key and the certificate that the broker shows to the schema registry:"
        " PEM, PKCS12 or JKS. Empty: it shows none." + _NAMED,
    )
    schema_registry_ssl_keystore_password: str = prop(
        "schema.registry.ssl.keystore.password",
        PASSWORD,
        default="",
        dynamic=False,
        doc="The password of this file, if it is PKCS12 or JKS." + _NAMED,
    )
    schema_registry_ssl_key_password: str = prop(
        "schema.registry.ssl.key.password",
        PASSWORD,
        default="",
        dynamic=False,
        doc="The password of the key in this file, if it has one of its own." + _NAMED,
    )

    def check_schema_registry(self) -> None:
        """Raise ConfigError if the registry's address or login cannot be used."""
        if not self.schema_registry_url:
            return
        # Imported here: most brokers have no registry.
        from schemas.registry_access import BadRegistryUrl, registry_url

        for text in self.schema_registry_url:
            try:
                registry_url(text)
            except BadRegistryUrl as error:
                raise ConfigError(f"{URL}: {error}") from error
        info = self.schema_registry_basic_auth_user_info
        if info and ":" not in info:
            raise ConfigError(f"{USER_INFO}: it has the form user:password")

    def schema_registry_tls(self) -> Mapping[str, str]:
        """Returns the properties of TLS that are set, with the names that Kafka's clients have."""
        texts = {
            "ssl.truststore.location": self.schema_registry_ssl_truststore_location,
            "ssl.truststore.password": self.schema_registry_ssl_truststore_password,
            "ssl.keystore.location": self.schema_registry_ssl_keystore_location,
            "ssl.keystore.password": self.schema_registry_ssl_keystore_password,
            "ssl.key.password": self.schema_registry_ssl_key_password,
        }
        return {name: text for name, text in texts.items() if text}
