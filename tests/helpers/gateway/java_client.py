"""Java's own HttpClient through a gateway of this machine, which it offers HTTP/2 first.

    python tests/helpers/gateway/java_client.py

Needs a JDK (`apt install default-jdk-headless`). Exit code 0 where each request was answered.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HELPERS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HELPERS), str(HELPERS / "onhost")]

from gateway_process import CHAT, running  # noqa: E402

#: POSTs a text with its length, and in chunks.
PROGRAM = """
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.*;
public class Ask {
  public static void main(String[] given) throws Exception {
    var client = HttpClient.newHttpClient();
    var text = given[1];
    var chunks = BodyPublishers.ofByteArrays(java.util.List.of(text.getBytes()));
    for (var body : new BodyPublisher[] {BodyPublishers.ofString(text), chunks}) {
      var request = HttpRequest.newBuilder(URI.create(given[0])).POST(body).build();
      var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
      System.out.println(answer.version() + " " + answer.statusCode() + " " + answer.body());
    }
  }
}
"""
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def main() -> int:
    """Ask twice; print what was answered."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as spark:
        bodies: list[bytes] = []

        def answer() -> None:
            for _ in range(2):
                wire = spark.accept()
                bodies.append(wire.asked().body)
                wire.send(_ANSWER)

        engine = threading.Thread(target=answer, daemon=True)
        engine.start()
        program = Path(folder, "Ask.java")
        program.write_text(PROGRAM, encoding="utf-8")
        door = spark.door("local")
        address = f"http://{door.address}:{door.port}{CHAT}"
        words = ["java", str(program), address, '{"model": "qwen", "messages": []}']
        done = subprocess.run(words, capture_output=True, text=True)
        print(done.stdout, done.stderr)
        right = done.stdout.split("\n")[:2] == ["HTTP_1_1 200 ok"] * 2
        return 0 if right and all(b'"messages": []' in body for body in bodies) else 1


if __name__ == "__main__":
    sys.exit(main())
