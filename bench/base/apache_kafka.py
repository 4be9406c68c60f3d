"""Apache Kafka as a peer under measurement: one node, broker and controller in one process.

Maven fetches its jars once (`kafka-4.3` has the pins); Java 17 or later runs it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.base.processes import free_port
from pipeline.spark.jars import jars

PINS = Path(__file__).parent / "kafka-4.3"
NAME = "Apache Kafka 4.3.1"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dir={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


def kafka_command(
    port: int,
    folder: Path,
    *,
    properties: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Format a new data directory in `folder`. Returns the command line of a broker on `port` with it.

    `properties` override ours; their listeners get a controller's beside them. `options` are the JVM's.

    Raises:
        JarsUnavailable: Java or Maven is missing, or Maven cannot fetch the jars.
    """
    folder.mkdir(parents=True)
    file = folder / "server.properties"
    controller = free_port()
    file.write_text(
        PROPERTIES.format(port=port, controller=controller, data=folder / "data")
        + "".join(f"{row}\n" for row in _rows(properties or {}, controller))
    )
    java = ["java", "-Xms1g", "-Xmx1g", *options, "-cp", os.pathsep.join(map(str, jars(PINS)))]
    tool = [*java, "kafka.tools.StorageTool", "format", "--standalone"]
    subprocess.run([*tool, "-t", CLUSTER_ID, "-c", str(file)], check=True, capture_output=True)
    return [*java, "kafka.Kafka", str(file)]


def _rows(properties: Mapping[str, str], controller: int) -> list[str]:
    added = {
        "listeners": f",CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": ",CONTROLLER:PLAINTEXT",
    }
    return [f"{name}={value}{added.get(name, '')}" for name, value in properties.items()]
