# byheart on the command line: docker build -t byheart . && docker run --rm -v "$PWD:/data" byheart memorize table.csv
FROM python:3.11-slim

# EXTRAS=export adds PyTorch, ONNX Runtime and Transformers; EXTRAS=all adds everything.
ARG EXTRAS=onnx
WORKDIR /opt/byheart
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY docs/byheart.1 docs/byheart.1
COPY src src
RUN pip install --no-cache-dir -c constraints.txt ".[build,${EXTRAS}]"

# Files are written as whoever runs the container, not as root: docker run --user "$(id -u):$(id -g)" …
# Compiled kernels are kept in a folder that any user may write.
ENV NUMBA_CACHE_DIR=/tmp/byheart
WORKDIR /data
ENTRYPOINT ["byheart"]
CMD ["--help"]
